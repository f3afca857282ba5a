//! Malformed input: inline commands, protocol errors, pieces. Tern answers and closes as Redis does.

use crate::support::resp::{Client, text};
use crate::support::server::{redis, tern};
use std::time::Duration;

fn cases() -> Vec<Vec<u8>> {
    let mut cases: Vec<Vec<u8>> = [
        "PING\r\n",
        "PING\n",
        "\r\n\r\nPING\r\n",
        "   PING   hello  \r\n",
        "SET \"a\\x00\\n\\\"b\" 'it\\'s'\r\nGET \"a\\x00\\n\\\"b\"\r\n",
        "SET a \"unbalanced\r\nPING\r\n",
        "SET a 'unbalanced\r\n",
        "SET a \"b\"c\r\n",
        "GET \"\"\r\n",
        "*0\r\nPING\r\n",
        "*-1\r\nPING\r\n",
        "*\r\nPING\r\n",
        "*abc\r\nPING\r\n",
        "*1 \r\n$4\r\nPING\r\n",
        "*1\r\n+PING\r\n",
        "*1\r\n:4\r\nPING\r\n",
        "*1\r\n$abc\r\nPING\r\n",
        "*1\r\n$-1\r\nPING\r\n",
        "*1\r\n$\r\nPING\r\n",
        "*1\r\n$536870913\r\n",
        "*1\r\n$9223372036854775808\r\n",
        "*1048577\r\n",
        "*2147483648\r\n",
        "*99999999999999999999\r\n",
        "*1\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n",
        "*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n*1\r\n$4\r\nPING\r\n",
        "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nhello\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n+\r\nPING\r\n",
        "PING\r\n*1\r\n$4\r\nPING\r\nECHO x\r\n",
        "$4\r\nPING\r\n",
        "+PING\r\n",
        "GET a b c\r\nNOSUCH 'x y' z\r\n",
        "QUIT\r\nPING\r\n",
        "*1\r\n$4\r\nQUIT\r\n*1\r\n$4\r\nPING\r\n",
        "HELLO 3\r\n*1\r\n$-5\r\n",
        "MULTI\r\nSET a b\r\nGET a\r\nEXEC\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET x\r\nHost: localhost:6379\r\nPING\r\n",
    ]
    .iter()
    .map(|s| s.as_bytes().to_vec())
    .collect();
    cases.push([b"GET ".as_slice(), &b"x".repeat(70_000)].concat());
    cases.push([b"*".as_slice(), &b"1".repeat(70_000)].concat());
    cases.push([b"*1\r\n$".as_slice(), &b"1".repeat(70_000)].concat());
    cases.push([b"GET ".as_slice(), &b"x".repeat(60_000), b"\r\n"].concat());
    cases
}

/// All replies to `bytes`, sent at once or byte by byte, and whether the server then closed.
fn answer(port: u16, bytes: &[u8], piecewise: bool) -> (Vec<u8>, bool) {
    let mut client = Client::connect(port).unwrap();
    client.set_timeout(Duration::from_millis(400));
    if piecewise {
        for byte in bytes {
            if client.send_raw(&[*byte]).is_err() {
                break;
            }
        }
    } else {
        let _ = client.send_raw(bytes);
    }
    client.drain()
}

#[test]
fn malformed_bytes_are_answered_as_by_redis() {
    let Some(redis) = redis("wire differential test") else { return };
    let tern = tern(&[]);
    let cases = cases();
    let runs =
        cases.iter().map(|c| (c, false)).chain(cases.iter().filter(|c| c.len() < 200).map(|c| (c, true)));
    let complaints: Vec<String> =
        runs.filter_map(|(case, piecewise)| differs(redis.port, tern.port, case, piecewise)).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// A server that closes while bytes are still arriving resets the connection, which may lose its last reply:
/// Redis' reply may be shorter, so only a difference in every one of a few tries counts.
fn differs(redis: u16, tern: u16, case: &[u8], piecewise: bool) -> Option<String> {
    let mut complaint = None;
    for _ in 0..5 {
        let (expected, got) = (answer(redis, case, piecewise), answer(tern, case, piecewise));
        let maps = expected.0.starts_with(b"%") && got.0.starts_with(b"%");
        let longer = expected.1 && got.1 && got.0.starts_with(&expected.0);
        let same =
            longer || expected == got || maps && tail(&expected.0) == tail(&got.0) && expected.1 == got.1;
        if same {
            return None;
        }
        let show = |(bytes, closed): &(Vec<u8>, bool)| format!("{} closed={closed}", text(bytes));
        let what = text(case);
        complaint = Some(format!(
            "{what} piecewise={piecewise}\n  redis: {}\n  tern:  {}",
            show(&expected),
            show(&got)
        ));
    }
    complaint
}

/// The last line: the map of HELLO before it names the server.
fn tail(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii_end().rsplit(|b| *b == b'\n').next().unwrap_or_default()
}
