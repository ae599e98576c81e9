//! A share of something, 0 < x ≤ 1, as exact decimal digits: `dram-utilization`. Knows no schema.

/// An exact decimal share, 0 < x ≤ 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Utilization {
    /// Its digits as one whole number, most significant first, without leading zeros.
    digits: Vec<u8>,
    /// How many of them stand after the decimal point; may exceed their number.
    scale: usize,
}

impl Utilization {
    /// Reads a decimal lexeme: digits with optional `_`, a dot and an exponent. Nothing when it is no such text or not
    /// within 0 < x ≤ 1.
    pub fn parse(lexeme: &str) -> Option<Self> {
        let clean: String = lexeme.chars().filter(|c| *c != '_').collect();
        let unsigned = clean.strip_prefix('+').unwrap_or(&clean);
        let (number, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i64>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
            return None;
        }
        let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').collect();
        digits.drain(..digits.iter().take_while(|digit| **digit == 0).count());
        let scale = i64::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        // A number of n digits is at most 1 if the point stands at or before its first digit, or if it is 10^scale.
        let length = i64::try_from(digits.len()).ok()?;
        let one = length == scale.checked_add(1)? && digits.first() == Some(&1) && digits[1..].iter().all(|d| *d == 0);
        let within = length > 0 && (length <= scale || one);
        within.then_some(())?;
        Some(Self { digits, scale: usize::try_from(scale).ok()? })
    }

    /// ⌊amount · share / divisor⌋, exactly. The divisor is not 0.
    pub fn of(&self, amount: u128, divisor: u128) -> u128 {
        // amount · digits, least significant decimal digit first; then the last `scale` digits fall off, which is
        // exact because ⌊⌊a/b⌋/c⌋ = ⌊a/(b·c)⌋.
        let mut product = Vec::with_capacity(self.digits.len() + 40);
        let mut carry = 0_u128;
        for digit in self.digits.iter().rev() {
            carry += amount * u128::from(*digit);
            product.push(carry % 10);
            carry /= 10;
        }
        while carry > 0 {
            product.push(carry % 10);
            carry /= 10;
        }
        let whole = product.iter().skip(self.scale).rev().fold(0_u128, |value, digit| value * 10 + digit);
        whole / divisor.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_shares_are_read() {
        for text in ["0.8", "1", "1.0", "1e-1", "10e-1", "0.80", ".5", "+0.5", "0_0.5", "1e-400", "1E0"] {
            assert!(Utilization::parse(text).is_some(), "{text}");
        }
        for text in
            ["0", "0.0", "-0.5", "1.0000000000000000000000000001", "2", "1e1", "x", "", ".", "0x1", "1e", "0.5.5"]
        {
            assert!(Utilization::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn tiny_and_long_shares_are_exact() {
        let share = |text: &str| Utilization::parse(text).unwrap();
        assert_eq!(share("1e-400").of(u128::MAX / 16, 1), 0);
        assert_eq!(share("0.1234567890123456789").of(10_u128.pow(19), 1), 1_234_567_890_123_456_789);
        assert_eq!(share("1.000").of(7, 2), 3);
    }

    proptest! {
        #[test]
        fn it_is_integer_arithmetic(digits in 1_u64..=1_000_000, amount in 0_u64..1 << 50, divisor in 1_u64..1 << 40) {
            let lexeme = format!("{}e-6", digits);
            let exact = u128::from(amount) * u128::from(digits) / 1_000_000 / u128::from(divisor);
            prop_assert_eq!(Utilization::parse(&lexeme).unwrap().of(amount.into(), divisor.into()), exact);
            let dotted = format!("{}.{:06}", digits / 1_000_000, digits % 1_000_000);
            prop_assert_eq!(Utilization::parse(&dotted).unwrap().of(amount.into(), divisor.into()), exact);
        }
    }
}
