//! `user_data` of a submission: operation, connection slot and generation, packed and unpacked side
//! by side.
//!
//! ```text
//!  63        56 55            32 31             0
//! | operation  |   generation   |      slot      |
//! ```
//!
//! The generation of a slot rises when its connection is closed, so that a late completion of the
//! old connection is told from those of the new one (24 bits: wraps after 16.7 million connections
//! in one slot, long after the last late completion has arrived).

/// What a completion answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Connection attempt.
    Connect = 1,
    /// Multishot receive.
    Receive = 2,
    /// Send.
    Send = 3,
    /// Cancel of everything on a descriptor.
    Cancel = 4,
    /// Close of a descriptor.
    Close = 5,
    /// Wake-up by control.
    Wake = 6,
    /// Multishot accept.
    Accept = 7,
    /// Send of bytes of the slot's own.
    SendOutbox = 8,
    /// End of a long wait.
    Alarm = 9,
}

/// Largest generation.
pub const GENERATION_MAX: u32 = (1 << 24) - 1;

/// The decoded `user_data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// What was asked.
    pub operation: Operation,
    /// Generation of the slot at that time.
    pub generation: u32,
    /// Index of the connection.
    pub slot: u32,
}

impl Token {
    /// Packs the three.
    pub fn encode(self) -> u64 {
        debug_assert!(self.generation <= GENERATION_MAX);
        u64::from(self.operation as u8) << 56
            | u64::from(self.generation) << 32
            | u64::from(self.slot)
    }

    /// Unpacks; `None` for an operation that is none of ours.
    pub fn decode(user_data: u64) -> Option<Token> {
        let operation = match (user_data >> 56) as u8 {
            1 => Operation::Connect,
            2 => Operation::Receive,
            3 => Operation::Send,
            4 => Operation::Cancel,
            5 => Operation::Close,
            6 => Operation::Wake,
            7 => Operation::Accept,
            8 => Operation::SendOutbox,
            9 => Operation::Alarm,
            _ => return None,
        };
        Some(Token {
            operation,
            generation: (user_data >> 32) as u32 & GENERATION_MAX,
            slot: user_data as u32,
        })
    }
}

/// The next generation of a slot.
pub fn next_generation(generation: u32) -> u32 {
    (generation + 1) & GENERATION_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_survives_the_round_trip_at_its_edges() {
        for operation in [
            Operation::Connect,
            Operation::Receive,
            Operation::Send,
            Operation::Cancel,
            Operation::Close,
            Operation::Wake,
            Operation::Accept,
        ] {
            for generation in [0, 1, GENERATION_MAX] {
                for slot in [0, 1, u32::MAX] {
                    let token = Token { operation, generation, slot };
                    assert_eq!(Token::decode(token.encode()), Some(token));
                }
            }
        }
        assert_eq!(Token::decode(0), None);
        assert_eq!(Token::decode(u64::MAX), None);
    }

    #[test]
    fn generation_wraps() {
        assert_eq!(next_generation(0), 1);
        assert_eq!(next_generation(GENERATION_MAX), 0);
    }
}
