//! The checksum of a payload: CRC-64 with Jones' polynomial, bits reflected, begun with 0.

/// The polynomial, its lowest power at the top.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

const TABLE: [u64; 256] = table();

#[expect(clippy::indexing_slicing, reason = "runs while compiling")]
const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut crc = n as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
}

/// The checksum.
pub(super) fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc: u64, byte| {
        let entry = TABLE.get(usize::from(crc as u8 ^ byte)).copied().unwrap_or(0);
        entry ^ crc >> 8
    })
}

#[cfg(test)]
mod tests {
    /// The polynomial's published check value.
    #[test]
    fn check_value() {
        assert_eq!(super::crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }
}
