//! Reading Rust just well enough.

/// `source` with the contents of comments, strings and characters replaced by spaces; lines stay where they are.
pub fn blank(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end > at {
            for byte in &mut out[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
            at = end;
        } else {
            at += 1;
        }
    }
    String::from_utf8(out).expect("blanking keeps text valid")
}

/// Where the comment, string or character that starts at `at` ends; `at` itself if none starts there.
pub fn literal_end(b: &[u8], at: usize) -> usize {
    let rest = &b[at..];
    let after_name = at > 0 && (b[at - 1].is_ascii_alphanumeric() || b[at - 1] == b'_');
    match rest {
        [b'/', b'/', ..] => at + rest.iter().position(|&c| c == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_end(b, at),
        [b'r', b'"' | b'#', ..] if !after_name => raw_string_end(b, at, at + 1),
        [b'b', b'r', b'"' | b'#', ..] if !after_name => raw_string_end(b, at, at + 2),
        [b'"', ..] => quoted_end(b, at, b'"'),
        [b'\'', b'\\', ..] => quoted_end(b, at, b'\''),
        [b'\'', ..] => {
            let width = std::str::from_utf8(&rest[1..rest.len().min(5)])
                .map(|s| s.chars().next().map_or(1, char::len_utf8))
                .unwrap_or_else(|e| if e.valid_up_to() > 0 { 1 } else { 4 });
            if rest.get(1 + width) == Some(&b'\'') { at + width + 2 } else { at }
        }
        _ => at,
    }
}

pub fn block_comment_end(b: &[u8], at: usize) -> usize {
    let (mut depth, mut i) = (0, at);
    while i + 1 < b.len() {
        match (b[i], b[i + 1]) {
            (b'/', b'*') => (depth, i) = (depth + 1, i + 2),
            (b'*', b'/') if depth == 1 => return i + 2,
            (b'*', b'/') => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
    }
    b.len()
}

pub fn raw_string_end(b: &[u8], at: usize, hashes_from: usize) -> usize {
    let hashes = b[hashes_from..].iter().take_while(|&&c| c == b'#').count();
    if b.get(hashes_from + hashes) != Some(&b'"') {
        return at;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let body = hashes_from + hashes + 1;
    let end = b[body..].windows(close.len()).position(|w| w == close);
    end.map_or(b.len(), |e| body + e + close.len())
}

pub fn quoted_end(b: &[u8], at: usize, quote: u8) -> usize {
    let mut i = at + 1;
    while i < b.len() && b[i] != quote {
        i += if b[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(b.len())
}

/// Blanked code without the items under `#[cfg(test)]`.
pub fn production(source: &str) -> String {
    let mut code = blank(source);
    while let Some(start) = code.find("#[cfg(test)]") {
        let end = item_end(&code, start);
        let kept: String = code[start..end].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        code.replace_range(start..end, &kept);
    }
    code
}

/// The end of the item at `start`: its closing brace, or its semicolon if that comes before any brace.
pub fn item_end(code: &str, start: usize) -> usize {
    let (mut depth, mut brackets) = (0usize, 0usize);
    for (i, c) in code[start..].char_indices() {
        match c {
            '[' | '(' => brackets += 1,
            ']' | ')' => brackets = brackets.saturating_sub(1),
            ';' if depth == 0 && brackets == 0 => return start + i + 1,
            '{' => depth += 1,
            '}' if depth <= 1 => return start + i + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

pub fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Places where `word` stands in `code`, not as a part of a longer name.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(i, _)| i).filter(move |&i| {
        let before = code[..i].chars().next_back().is_none_or(|c| !is_name(c));
        let after = code[i + word.len()..].chars().next().is_none_or(|c| !is_name(c));
        before && (after || !word.ends_with(is_name))
    })
}

pub fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// The module of a path below `src`: its folder or its file's name.
pub fn module_of(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

/// First names after every `crate::`, groups included, each with its line.
pub fn imports(path: &str, code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for start in words(code, "crate::") {
        let rest = &code[start + "crate::".len()..];
        let names = if rest.starts_with('{') { group_heads(rest) } else { vec![head(rest)] };
        found.extend(names.into_iter().map(|name| (name, line_of(code, start))));
    }
    // A chain of `super::` long enough to reach the root. A `mod.rs` stands one level higher than its neighbours.
    let file = path.rsplit('/').next().unwrap_or(path);
    let depth = path.matches('/').count() + usize::from(file != "mod.rs");
    let climb = "super::".repeat(depth);
    for start in words(code, &climb) {
        if !code[..start].ends_with("super::") {
            found.push((head(&code[start + climb.len()..]), line_of(code, start)));
        }
    }
    found
}

pub fn head(rest: &str) -> String {
    rest.chars().take_while(|&c| is_name(c)).collect()
}

/// The first names inside `{a::b, c::{d, e}}`.
pub fn group_heads(rest: &str) -> Vec<String> {
    let (mut depth, mut heads, mut fresh) = (0, Vec::new(), false);
    for (i, c) in rest.char_indices() {
        match c {
            '{' => (depth, fresh) = (depth + 1, depth == 0),
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' if depth == 1 => fresh = true,
            c if fresh && is_name(c) => {
                heads.push(head(&rest[i..]));
                fresh = false;
            }
            _ => {}
        }
    }
    heads
}
