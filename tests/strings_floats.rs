//! INCRBYFLOAT computes in C's 80-bit long double. The results were recorded from redis-server 7.0.15.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use rig::{Rig, bulk};
use tern::server::reply::Reply;

const NOT_FLOAT: &str = "ERR value is not a valid float";
const INFINITE: &str = "ERR increment would produce NaN or Infinity";

const CASES: &[(&str, &str, &str)] = &[
    ("10.5", "0.1", "10.6"),
    ("5.0e3", "2.0e2", "5200"),
    ("0.1", "0.2", "0.3"),
    ("3", "-3", "0"),
    ("-0.1", "0.1", "0"),
    ("-0", "0", "0"),
    ("1e17", "1", "100000000000000001"),
    ("1e19", "0.5", "10000000000000000000"),
    ("9223372036854775807", "1", "9223372036854775808"),
    ("18446744073709551615", "1", "18446744073709551616"),
    ("18446744073709551616", "1", "18446744073709551616"),
    ("0.00000000000000001", "0", "0.00000000000000001"),
    ("0.000000000000000005", "0", "0"),
    ("0.0000000000000000051", "0", "0.00000000000000001"),
    ("0.000000000000000015", "0", "0.00000000000000002"),
    ("1.000000000000000005", "0", "1"),
    ("123456789.123456789123456789", "0", "123456789.12345678912242875"),
    ("0x10", "1", "17"),
    ("0x1.8p1", "0x.8", "3.5"),
    ("0xAp-2", "1", "3.5"),
    ("1e-17", "1e-17", "0.00000000000000002"),
    ("1e-30", "1", "1"),
    ("1e4932", "1e4932", INFINITE),
    ("1e4933", "0", NOT_FLOAT),
    ("1e-4951", "0", NOT_FLOAT),
    ("1e-4960", "0", NOT_FLOAT),
    ("inf", "1", INFINITE),
    ("-Infinity", "1", INFINITE),
    ("inf", "-inf", INFINITE),
    ("nan", "1", NOT_FLOAT),
    ("1", "nan", NOT_FLOAT),
    ("", "1", NOT_FLOAT),
    (" 1", "1", NOT_FLOAT),
    ("1 ", "1", NOT_FLOAT),
    ("1", "+5", "6"),
    (".5", "5.", "5.5"),
    ("1", ".", NOT_FLOAT),
    ("1", "1e", NOT_FLOAT),
    ("1", "0x", NOT_FLOAT),
    ("1", "1e+", NOT_FLOAT),
    ("1", "1e+2", "101"),
    ("1", "--1", NOT_FLOAT),
    ("1", "1_0", NOT_FLOAT),
    ("1", "1,5", NOT_FLOAT),
    ("3.0", "1.5e0", "4.5"),
    ("2", "0.33333333333333333333333", "2.33333333333333333"),
    ("0e99999", "1", "1"),
    ("00012", "0.5", "12.5"),
    ("1", "1e-5000", NOT_FLOAT),
    ("99999999999999999999.5", "0", "100000000000000000000"),
    ("0.5", "-1e-19", "0.5"),
];

#[tokio::test]
async fn results_match_redis() {
    let mut rig = Rig::new().await;
    for (old, by, want) in CASES {
        rig.run(&["SET", "f", old]).await;
        let reply = rig.run(&["INCRBYFLOAT", "f", by]).await;
        let (got, stored) = match &reply {
            Reply::Error(e) => (e.0.to_string(), (*old).to_owned()),
            Reply::Bulk(b) => (String::from_utf8_lossy(b).into_owned(), (*want).to_owned()),
            other => panic!("{other:?}"),
        };
        assert_eq!(got, *want, "{old} + {by}");
        assert_eq!(rig.line("GET f").await, bulk(stored), "{old} + {by}");
    }
}

#[tokio::test]
async fn huge_numbers_are_printed_digit_by_digit() {
    let mut rig = Rig::new().await;
    for (old, by, digits, head) in
        [("1e4932", "0", 4933, "10000000000000000000"), ("1e4931", "9e4931", 4932, "99999999999999999994")]
    {
        rig.run(&["SET", "f", old]).await;
        let Reply::Bulk(sum) = rig.run(&["INCRBYFLOAT", "f", by]).await else { panic!("{old} + {by}") };
        assert_eq!(sum.len(), digits);
        assert!(sum.starts_with(head.as_bytes()), "{old} + {by}");
    }
}

#[tokio::test]
async fn keeps_the_expiry_and_creates_a_missing_key() {
    let mut rig = Rig::new().await;
    rig.line("SET f 1 PX 5000").await;
    assert_eq!(rig.line("INCRBYFLOAT f 0.5").await, bulk("1.5"));
    assert_eq!(rig.line("PTTL f").await, Reply::Int(5000));
    assert_eq!(rig.line("INCRBYFLOAT new -2.50").await, bulk("-2.5"));
    assert_eq!(rig.line("TTL new").await, Reply::Int(-1));
}
