//! The words of a line and the arithmetic that they spell: Python's, as far as `python_config.rs` says.

use super::{Found, Read, Script};
use toml::Value;

/// The parentheses, signs and powers that may lie in one another.
const DEEPEST: usize = 64;
/// Bytes of the longest text: two of them joined in every line would outgrow any memory.
const LONGEST_TEXT: usize = 1 << 12;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Word<'a> {
    Name(&'a str),
    /// Digits, a point, an exponent, as they stand there.
    Number(&'a str),
    /// What stands between the quotes.
    Text(&'a str),
    Sign(&'a str),
    End,
}

impl std::fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Word::Name(text) | Word::Number(text) | Word::Sign(text) => write!(f, "`{text}`"),
            Word::Text(text) => write!(f, "the text '{text}'"),
            Word::End => write!(f, "the end of the line"),
        }
    }
}

/// The rest of a line.
#[derive(Clone, Copy)]
pub(super) struct Words<'a>(pub &'a str);

impl<'a> Words<'a> {
    pub fn next(&mut self) -> Read<Word<'a>> {
        let text = self.0.trim_start();
        let Some(first) = text.chars().next().filter(|&c| c != '#') else { return Ok(Word::End) };
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let after_point = text[first.len_utf8()..].starts_with(|c: char| c.is_ascii_digit());
        if first == '\'' || first == '"' {
            return self.text(text, first);
        }
        let number = first.is_ascii_digit() || first == '.' && after_point;
        let length = if number {
            number_length(text)
        } else if letter(first) {
            text.find(|c| !letter(c)).unwrap_or(text.len())
        } else {
            let long = ["**", "//", "==", "+=", "-=", "*=", "/="];
            long.iter().find(|sign| text.starts_with(**sign)).map_or(first.len_utf8(), |s| s.len())
        };
        let (word, rest) = text.split_at(length);
        self.0 = rest;
        Ok(match () {
            () if number => Word::Number(word),
            () if letter(first) => Word::Name(word),
            () => Word::Sign(word),
        })
    }

    fn text(&mut self, text: &'a str, quote: char) -> Read<Word<'a>> {
        let inside = &text[1..];
        let end = inside.find(quote).ok_or(format!("the text {text} does not end in its line"))?;
        let (inside, rest) = (&inside[..end], &inside[end + 1..]);
        if inside.contains('\\') {
            return Err(format!("the text '{inside}' has a `\\`, which is not read here"));
        }
        if inside.is_empty() && rest.starts_with(quote) {
            return Err("a text in three quotes is not read here".into());
        }
        self.0 = rest;
        Ok(Word::Text(inside))
    }
}

/// Bytes of the number that `text` begins with, and of letters that run on from it.
fn number_length(text: &str) -> usize {
    let mut before = ' ';
    let ends = |c: char| {
        let exponents = matches!(before, 'e' | 'E') && matches!(c, '+' | '-');
        before = c;
        !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_') || exponents)
    };
    text.find(ends).unwrap_or(text.len())
}

/// What is left of an expression, read from left to right.
pub(super) struct Sum<'a, 's> {
    pub next: Word<'a>,
    pub words: Words<'a>,
    pub script: &'s mut Script,
    pub depth: usize,
}

impl Sum<'_, '_> {
    /// Takes the next word if it is one of `signs`.
    fn sign(&mut self, signs: &[&'static str]) -> Read<Option<&'static str>> {
        let found = signs.iter().find(|sign| self.next == Word::Sign(sign)).copied();
        if found.is_some() {
            self.next = self.words.next()?;
        }
        Ok(found)
    }

    pub fn sum(&mut self) -> Read<Found> {
        let mut value = self.product()?;
        while let Some(sign) = self.sign(&["+", "-"])? {
            value = joined(value, sign, self.product()?)?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Read<Found> {
        let mut value = self.signed()?;
        while let Some(sign) = self.sign(&["*", "//", "/", "%"])? {
            value = joined(value, sign, self.signed()?)?;
        }
        Ok(value)
    }

    fn signed(&mut self) -> Read<Found> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("more than {DEEPEST} things lie in one another"));
        }
        let value = match self.sign(&["-", "+"])? {
            None => self.power()?,
            Some(sign) => {
                let zero = Found::Value(Value::Integer(0));
                match (sign, self.signed()?) {
                    // 0 - 0.0 would lose its sign.
                    ("-", Found::Value(Value::Float(x))) => Found::Value(Value::Float(-x)),
                    (sign, value) => joined(zero, sign, value)?,
                }
            }
        };
        self.depth -= 1;
        Ok(value)
    }

    fn power(&mut self) -> Read<Found> {
        let value = self.atom()?;
        match self.sign(&["**"])? {
            None => Ok(value),
            Some(sign) => joined(value, sign, self.signed()?),
        }
    }

    fn atom(&mut self) -> Read<Found> {
        let word = self.next;
        if self.sign(&["("])?.is_some() {
            let value = self.sum()?;
            return match self.sign(&[")"])? {
                Some(_) => Ok(value),
                None => Err(format!("found {}, expected `)`", self.next)),
            };
        }
        let value = match word {
            Word::Name("True") => Value::Boolean(true),
            Word::Name("False") => Value::Boolean(false),
            Word::Name("None") => {
                self.next = self.words.next()?;
                return Ok(Found::None);
            }
            Word::Number(digits) => number(digits)?,
            Word::Text(text) => text.into(),
            Word::Name(name) => {
                let Some((_, value)) = self.script.names.get(name) else {
                    return Err(format!("`{name}` has no value in the lines before"));
                };
                let value = value.clone();
                self.script.used.insert(name.into());
                self.next = self.words.next()?;
                return Ok(value);
            }
            other => return Err(format!("found {other}, expected a value")),
        };
        self.next = self.words.next()?;
        Ok(Found::Value(value))
    }
}

fn number(digits: &str) -> Read<Value> {
    let wrong = || format!("`{digits}` is no number that is read here");
    let plain = digits.replace('_', "");
    if plain.bytes().all(|byte| byte.is_ascii_digit()) {
        return plain.parse().map(Value::Integer).map_err(|_| format!("`{digits}` is too large"));
    }
    let float = plain.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
    let value = plain.parse::<f64>().ok().filter(|_| float).ok_or_else(wrong)?;
    finite(value)
}

fn finite(value: f64) -> Read<Value> {
    match value.is_finite() {
        true => Ok(Value::Float(value)),
        false => Err("the value is too large for a number".into()),
    }
}

/// `a sign b` as Python has it.
fn joined(a: Found, sign: &str, b: Found) -> Read<Found> {
    let (Found::Value(a), Found::Value(b)) = (&a, &b) else {
        return Err(format!("`{sign}` needs two numbers, found {a} and {b}"));
    };
    let value = match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => whole(*a, sign, *b)?,
        (Value::String(a), Value::String(b)) if sign == "+" => {
            if a.len() + b.len() > LONGEST_TEXT {
                return Err(format!("the text is longer than {LONGEST_TEXT} bytes"));
            }
            format!("{a}{b}").into()
        }
        _ => match (as_float(a), as_float(b)) {
            (Some(a), Some(b)) => real(a, sign, b)?,
            _ => return Err(format!("`{sign}` needs two numbers, found {a} and {b}")),
        },
    };
    Ok(Found::Value(value))
}

fn as_float(value: &Value) -> Option<f64> {
    value.as_float().or(value.as_integer().map(|n| n as f64))
}

fn whole(a: i64, sign: &str, b: i64) -> Read<Value> {
    let value = match sign {
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "**" if b >= 0 => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        // Rounded down, and the rest has the sign of the divisor.
        "//" if b != 0 => a.checked_div(b).map(|q| q - i64::from(a % b != 0 && (a < 0) != (b < 0))),
        "%" if b != 0 => {
            a.checked_rem(b).map(|r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r })
        }
        _ => return real(a as f64, sign, b as f64),
    };
    value.map(Value::Integer).ok_or_else(|| format!("{a} {sign} {b} is too large a number"))
}

fn real(a: f64, sign: &str, b: f64) -> Read<Value> {
    if b == 0.0 && matches!(sign, "/" | "//" | "%") {
        return Err(format!("{a} {sign} 0 divides by zero"));
    }
    finite(match sign {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        "//" => (a / b).floor(),
        "%" => a - b * (a / b).floor(),
        _ => a.powf(b),
    })
}
