//! An authority that signs certificates, made with openssl.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A certificate and its key.
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Signs certificates, which are stored in its directory.
pub struct Authority {
    dir: PathBuf,
    pub certificate: PathBuf,
}

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";

fn openssl(dir: &Path, line: &str) {
    let output = Command::new("openssl").args(line.split(' ')).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Authority {
    pub fn new(dir: &Path) -> Authority {
        std::fs::create_dir_all(dir).unwrap();
        let extensions = "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=keyCertSign";
        let config = "[req]\ndistinguished_name=dn\n[dn]\n[leaf]\nbasicConstraints=CA:FALSE\nsubjectAltName=IP:127.0.0.1\n";
        std::fs::write(dir.join("openssl.cnf"), config).unwrap();
        let name = dir.file_name().unwrap().to_str().unwrap();
        let files = format!("-config openssl.cnf -keyout ca.key -out ca.pem -subj /CN={name}");
        openssl(dir, &format!("req -x509 {KEY} {extensions} {files}"));
        Authority { dir: dir.to_owned(), certificate: dir.join("ca.pem") }
    }

    /// A certificate for `name`, of a server and a client.
    pub fn sign(&self, name: &str) -> Files {
        openssl(
            &self.dir,
            &format!("req {KEY} -config openssl.cnf -keyout {name}.key -out {name}.csr -subj /CN={name}"),
        );
        openssl(
            &self.dir,
            &format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile openssl.cnf -extensions leaf -out {name}.pem"
            ),
        );
        let [certificate, key] = ["pem", "key"].map(|end| self.dir.join(format!("{name}.{end}")));
        Files { certificate, key }
    }

    /// The key of `files` under a password.
    pub fn locked(&self, files: &Files) -> PathBuf {
        let key = files.key.to_str().unwrap();
        openssl(
            &self.dir,
            &format!("pkcs8 -topk8 -v2 aes256 -in {key} -out locked.key -passout pass:secret"),
        );
        self.dir.join("locked.key")
    }
}
