//! The operating system's data about this process. All zeros if `/proc` does not exist.

/// Ticks per second of the times in `/proc/self/stat`: fixed in Linux' user-space interface.
const TICKS: f64 = 100.0;
/// Bytes per page in `/proc/self/statm`, on every platform that Tern is built for.
const PAGE: u64 = 4096;

/// Memory and CPU time of this process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Process {
    /// Resident memory in bytes.
    pub(crate) rss: u64,
    /// Peak resident memory in bytes.
    pub(crate) peak: u64,
    /// Memory of the machine in bytes.
    pub(crate) machine: u64,
    /// Seconds in user space.
    pub(crate) user: f64,
    /// Seconds in the kernel.
    pub(crate) system: f64,
}

/// Reads them now.
pub(crate) fn read() -> Process {
    let file = |path| std::fs::read_to_string(path).unwrap_or_default();
    let statm = file("/proc/self/statm");
    let rss = statm.split_ascii_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
    let (user, system) = cpu(&file("/proc/self/stat")).unwrap_or_default();
    Process {
        rss: rss.unwrap_or_default() * PAGE,
        peak: kilobytes(&file("/proc/self/status"), "VmHWM:"),
        machine: kilobytes(&file("/proc/meminfo"), "MemTotal:"),
        user,
        system,
    }
}

/// Live tasks of the calling runtime; 0 outside one. A finished task that is still counted is a leak.
pub(crate) fn tasks() -> u64 {
    let runtime = tokio::runtime::Handle::try_current();
    runtime.map_or(0, |runtime| runtime.metrics().num_alive_tasks() as u64)
}

/// `Linux 6.1.0 x86_64`.
pub(crate) fn system() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{} {} {}", capital(std::env::consts::OS), release.trim(), std::env::consts::ARCH)
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|c| c.to_ascii_uppercase().to_string()).unwrap_or_default() + chars.as_str()
}

/// Fields 14 and 15 of `/proc/self/stat`, counted from after the name, which may contain anything.
fn cpu(stat: &str) -> Option<(f64, f64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS);
    Some((seconds()?, seconds()?))
}

fn kilobytes(text: &str, label: &str) -> u64 {
    let line = text.lines().find_map(|l| l.strip_prefix(label));
    let number = line.and_then(|l| l.split_ascii_whitespace().next());
    number.and_then(|n| n.parse::<u64>().ok()).unwrap_or_default() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_time() {
        let p = read();
        assert!(p.rss > 1 << 20 && p.peak >= p.rss / 2 && p.machine > p.rss, "{p:?}");
        assert!(system().starts_with("Linux ") || cfg!(not(target_os = "linux")));
    }

    #[test]
    fn a_name_with_a_parenthesis() {
        let stat = "1 (a) b) S 1 1 1 0 -1 4194560 1 2 3 4 250 50 0 0 20 0";
        assert_eq!(cpu(stat), Some((2.5, 0.5)));
    }
}
