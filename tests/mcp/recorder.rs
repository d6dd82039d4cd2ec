//! Every byte that the agent could see, and the search for a secret in it, however it was written down.

/// All that was seen.
#[derive(Default)]
pub(super) struct Seen(Vec<u8>);

impl Seen {
    /// A whole stream, or what stands by itself.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.0.push(b'\n');
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

/// The name of the first encoding in which the secret, or a third of it, stands in what was seen.
pub(super) fn found(secret: &str, seen: &[u8]) -> Option<&'static str> {
    // As it is, without what may stand between its characters, and without case.
    let plain: Vec<u8> = seen.iter().filter(|b| b.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect();
    encodings(secret).into_iter().find_map(|(name, written)| {
        let needle = |part: &[u8]| -> bool {
            let loose: Vec<u8> =
                part.iter().filter(|b| b.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect();
            contains(seen, part) || (loose.len() >= 12 && contains(&plain, &loose))
        };
        // A part is as telling as the whole: thirds, so that no cut through the middle hides it.
        let third = (written.len() / 3).max(8);
        written.chunks(third).filter(|part| part.len() == third).any(needle).then_some(name)
    })
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The secret as somebody may write it down.
fn encodings(secret: &str) -> Vec<(&'static str, Vec<u8>)> {
    let bytes = secret.as_bytes();
    let mut all = vec![
        ("as it is", bytes.to_vec()),
        ("reversed", bytes.iter().rev().copied().collect()),
        ("hex of its text", hex(bytes).into_bytes()),
        ("hex of its text, reversed", hex(bytes).bytes().rev().collect()),
        ("percent", bytes.iter().flat_map(|b| format!("%{b:02X}").into_bytes()).collect()),
        ("JSON escapes", bytes.iter().flat_map(|b| format!("\\u{b:04x}").into_bytes()).collect()),
        ("hex escapes", bytes.iter().flat_map(|b| format!("\\x{b:02x}").into_bytes()).collect()),
        ("HTML entities", bytes.iter().flat_map(|b| format!("&#{b};").into_bytes()).collect()),
        ("decimal list", bytes.iter().flat_map(|b| format!("{b}, ").into_bytes()).collect()),
        ("ROT13", bytes.iter().map(|b| rot13(*b)).collect()),
    ];
    for (name, alphabet) in [("base64", BASE64), ("base64url", BASE64URL)] {
        // Where the secret begins within a group of three changes every digit.
        for skew in 0..3 {
            all.push((name, base64(bytes, skew, alphabet)));
        }
    }
    // A token of hex digits stands for bytes, and those can be written in other ways.
    if let Some(raw) = unhex(secret) {
        all.push(("raw bytes", raw.clone()));
        all.push(("raw bytes, reversed", raw.iter().rev().copied().collect()));
        all.push(("decimal list of its bytes", raw.iter().flat_map(|b| format!("{b}, ").into_bytes()).collect()));
        for skew in 0..3 {
            all.push(("base64 of its bytes", base64(&raw, skew, BASE64)));
            all.push(("base64url of its bytes", base64(&raw, skew, BASE64URL)));
        }
    }
    all
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The digits that depend on the secret alone, when `skew` other bytes stand before it.
fn base64(bytes: &[u8], skew: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let skip = (3 - skew) % 3;
    bytes[skip..]
        .chunks_exact(3)
        .flat_map(|three| {
            let bits = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
            [18, 12, 6, 0].map(|shift| alphabet[(bits >> shift & 63) as usize])
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    digits.filter(|digits| digits.len() % 2 == 0).map(|digits| digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect())
}

fn rot13(b: u8) -> u8 {
    match b {
        b'a'..=b'z' => (b - b'a' + 13) % 26 + b'a',
        b'A'..=b'Z' => (b - b'A' + 13) % 26 + b'A',
        other => other,
    }
}

#[test]
fn the_search_finds_a_secret_in_every_encoding_and_only_there() {
    let secret = "3f9a0c5be1d27748a6b0913cfe42d85a07c6e4b19d8f325061ab7c9de0f41827";
    let noise = b"{\"plan_token\":\"0123456789abcdef0123456789abcdef0123456789abcdef\"} and much more".repeat(20);
    assert_eq!(found(secret, &noise), None);
    for (name, written) in encodings(secret) {
        let mut seen = Seen::default();
        seen.add(&noise);
        seen.add(&[b"before ".to_vec(), written.clone(), b" after".to_vec()].concat());
        seen.add(&noise);
        assert!(found(secret, seen.bytes()).is_some(), "{name}");
        // The middle third alone is enough.
        let mut seen = Seen::default();
        let third = written.len() / 3;
        seen.add(&written[third..written.len() - third]);
        assert!(third < 8 || found(secret, seen.bytes()).is_some(), "a third of {name}");
    }
    for (name, written) in [
        ("with separators", secret.chars().map(|c| format!("{c}-")).collect::<String>()),
        ("in capitals", secret.to_uppercase()),
        (
            "over several lines",
            secret.as_bytes().chunks(10).map(|c| format!("{}\n", String::from_utf8_lossy(c))).collect(),
        ),
    ] {
        assert!(found(secret, written.as_bytes()).is_some(), "{name}");
    }
}
