//! Payloads of libraries of functions: their codes, one after the other.

use super::read::{Reader, Refused, body};
use super::{finish, put_string};
use bytes::Bytes;

/// What is in front of the code of a library.
const LIBRARY: u8 = 245;

/// The payload of libraries of functions, by their codes.
pub fn of_libraries(codes: &[Bytes]) -> Vec<u8> {
    let mut out = Vec::new();
    for code in codes {
        out.push(LIBRARY);
        put_string(&mut out, code);
    }
    finish(out)
}

/// The codes of libraries of functions. Refuses more than `most`, and those with more than `longest` bytes together.
pub async fn libraries(payload: &[u8], (most, longest): (usize, usize)) -> Result<Vec<Bytes>, Refused> {
    let body = body(payload).await.ok_or(Refused::Checksum)?;
    let (mut reader, mut codes) = (Reader { rest: body, longest }, Vec::new());
    while let Some((kind, rest)) = reader.rest.split_first() {
        if *kind != LIBRARY {
            return Err(Refused::Type(*kind));
        }
        if codes.len() == most {
            return Err(Refused::Format);
        }
        reader.rest = rest;
        let code = reader.string().await.ok_or(Refused::Format)?;
        reader.longest = reader.longest.checked_sub(code.len()).ok_or(Refused::Format)?;
        codes.push(code);
    }
    Ok(codes)
}
