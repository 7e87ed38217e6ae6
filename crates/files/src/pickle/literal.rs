//! Numbers and strings, as the instructions write them.

use super::error::Problem;
use super::node::Node;

/// The most digits of a number in a line of text. To turn them into bytes takes time with the square of their number.
const MAX_DIGITS: usize = 1000;

/// A whole number in two's complement, lowest byte first.
pub fn integer(mut bytes: Vec<u8>) -> Node {
    let sign = if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
    // The last byte says nothing if it only repeats the sign of the one before.
    while let [.., before, last] = bytes[..]
        && last == sign
        && (before ^ sign) & 0x80 == 0
    {
        bytes.pop();
    }
    let mut whole = [sign; size_of::<i64>()];
    match whole.get_mut(..bytes.len()) {
        Some(low) => {
            low.copy_from_slice(&bytes);
            Node::Int(i64::from_le_bytes(whole))
        }
        None => Node::WideInt(bytes.into()),
    }
}

/// A whole number in decimal, as in the instructions INT and LONG; these end theirs with an `L`.
pub fn decimal(line: &[u8]) -> Result<Node, Problem> {
    let line = line.trim_ascii();
    let line = line.strip_suffix(b"L").unwrap_or(line);
    let (is_negative, digits) = match line {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Problem::Malformed("a whole number"));
    }
    // Limbs of 32 bits, lowest first. Nine digits at a time still fit into one.
    let mut limbs: Vec<u32> = Vec::new();
    for digits in digits.chunks(9) {
        let (mut carry, mut factor) = (0, 1);
        for digit in digits {
            (carry, factor) = (carry * 10 + u64::from(digit - b'0'), factor * 10);
        }
        for limb in &mut limbs {
            carry += u64::from(*limb) * factor;
            (*limb, carry) = (carry as u32, carry >> 32);
        }
        if carry > 0 {
            limbs.push(carry as u32);
        }
    }
    // Room for the sign, then two's complement: the negative of x is the complement of x - 1.
    limbs.push(0);
    if is_negative {
        let first_set = limbs.iter().position(|&limb| limb != 0).unwrap_or(limbs.len());
        for (place, limb) in limbs.iter_mut().enumerate() {
            *limb = if place <= first_set { limb.wrapping_neg() } else { !*limb };
        }
    }
    Ok(integer(limbs.into_iter().flat_map(u32::to_le_bytes).collect()))
}

/// A number of the instruction FLOAT.
pub fn float(line: &[u8]) -> Result<f64, Problem> {
    let text = std::str::from_utf8(line.trim_ascii()).ok();
    text.and_then(|text| text.parse().ok()).ok_or(Problem::Malformed("a floating-point number"))
}

/// The index of the instructions PUT and GET.
pub fn index(line: &[u8]) -> Result<u32, Problem> {
    let text = std::str::from_utf8(line.trim_ascii()).ok();
    text.and_then(|text| text.parse().ok()).ok_or(Problem::Malformed("the index of an object"))
}

/// A string of Python 2 in quotes, with its escapes.
pub fn quoted(line: &[u8]) -> Result<Vec<u8>, Problem> {
    let malformed = || Problem::Malformed("a string in quotes");
    let [quote @ (b'\'' | b'"'), inner @ .., end] = line else { return Err(malformed()) };
    if quote != end {
        return Err(malformed());
    }
    let mut string = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'\\' {
            string.push(*first);
            continue;
        }
        let [escape, behind @ ..] = rest else { return Err(malformed()) };
        rest = behind;
        let byte = match escape {
            b'\\' | b'\'' | b'"' => *escape,
            b'a' => 7,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            b'x' => {
                let value = rest.get(..2).and_then(|digits| number(digits, 16)).ok_or_else(malformed)?;
                rest = &rest[2..];
                value as u8
            }
            b'0'..=b'7' => {
                let more = rest.iter().take(2).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
                let value = rest[..more].iter().fold(escape - b'0', |value, digit| (value << 3) | (digit - b'0'));
                rest = &rest[more..];
                value
            }
            // Python leaves an escape that it does not know as it is.
            other => {
                string.push(b'\\');
                *other
            }
        };
        string.push(byte);
    }
    Ok(string)
}

/// A text of the instruction UNICODE: Latin-1, and `\u` or `\U` before four or eight digits for everything else.
pub fn raw_unicode(line: &[u8]) -> Result<String, Problem> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let [first, behind @ ..] = rest {
        rest = behind;
        text.push(char::from(*first));
        let (b'\\', [escape, behind @ ..]) = (*first, rest) else { continue };
        rest = behind;
        let length = match escape {
            b'u' => 4,
            b'U' => 8,
            // Neither this character nor the one before it begins an escape.
            other => {
                text.push(char::from(*other));
                continue;
            }
        };
        let code = rest.get(..length).and_then(|digits| number(digits, 16));
        let code = code.filter(|&code| code <= 0x10_ffff).ok_or(Problem::Malformed("an escape of a text"))?;
        rest = &rest[length..];
        text.pop();
        text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    Ok(text)
}

/// Digits without a sign.
fn number(digits: &[u8], radix: u32) -> Option<u32> {
    digits
        .iter()
        .try_fold(0, |value: u32, &digit| value.checked_mul(radix)?.checked_add(char::from(digit).to_digit(radix)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_up_to_64_bits_are_plain_and_wider_ones_keep_their_bytes() {
        let decimal = |text: &str| decimal(text.as_bytes()).unwrap();
        assert_eq!(decimal("-0"), Node::Int(0));
        assert_eq!(decimal("  +12L "), Node::Int(12));
        assert_eq!(decimal("9223372036854775807"), Node::Int(i64::MAX));
        assert_eq!(decimal("-9223372036854775808L"), Node::Int(i64::MIN));
        let above = [0, 0, 0, 0, 0, 0, 0, 0x80, 0];
        assert_eq!(decimal("9223372036854775808"), Node::WideInt(above.into()));
        let below = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff];
        assert_eq!(decimal("-9223372036854775809"), Node::WideInt(below.into()));
        let two_to_64 = [0, 0, 0, 0, 0, 0, 0, 0, 0xff];
        assert_eq!(decimal("-18446744073709551616"), Node::WideInt(two_to_64.into()));
        assert_eq!(integer(vec![]), Node::Int(0));
        assert_eq!(integer(vec![0xff; 30]), Node::Int(-1));
        assert_eq!(integer(vec![0x80]), Node::Int(-128));
        assert_eq!(integer(vec![0x80, 0, 0]), Node::Int(128));
    }

    #[test]
    fn what_is_no_number_is_an_error() {
        for line in ["", "-", "L", "--1", "1 2", "0x10", "1_000", "1.0", &"9".repeat(MAX_DIGITS + 1)] {
            assert!(decimal(line.as_bytes()).is_err(), "{line}");
        }
        assert!(decimal("9".repeat(MAX_DIGITS).as_bytes()).is_ok());
        assert!(float(b"1,5").is_err());
        assert!(index(b"-1").is_err());
        assert!(index(b"4294967296").is_err());
    }

    #[test]
    fn strings_of_python_2_have_these_escapes() {
        assert_eq!(quoted(br#"'a\'\"\\\n\x41\101\18\q'"#).unwrap(), b"a'\"\\\nAA\x018\\q");
        assert_eq!(quoted(br"'\777'").unwrap(), [0xff], "Python drops the ninth bit");
        assert_eq!(quoted(b"\"it's\"").unwrap(), b"it's");
        for line in [&b""[..], b"'", b"'a", b"'a\"", b"a", br"'\'", br"'\x4'", br"'\xg0'"] {
            assert!(quoted(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn texts_of_protocol_0_have_these_escapes() {
        assert_eq!(raw_unicode(b"\xe4\\u20ac\\U0001f600\\n\\\\u0041\\").unwrap(), "ä€😀\\n\\\\u0041\\");
        assert_eq!(raw_unicode(br"\ud800").unwrap(), "\u{fffd}");
        for line in [&br"\u"[..], br"\u12", br"\u+123", br"\U0011000", br"\U00110000", br"\Uffffffff"] {
            assert!(raw_unicode(line).is_err(), "{line:?}");
        }
    }
}
