//! The effect of commands on hashes.

use super::commands::{int, number};
use super::values::Text;
use super::{Answer, Fields, Held, Now, State, Value};

impl State {
    pub(super) fn apply_to_hash(&mut self, words: &[&str], now: Now) -> Answer {
        let key = words[1];
        let mut fields = self.fields(key, now);
        let before = fields.len();
        match words {
            ["HSET", _, pairs @ ..] => {
                pairs.chunks(2).for_each(|pair| drop(fields.insert(pair[0].into(), pair[1].into())));
                let new = fields.len() - before;
                self.put_fields(key, fields, now);
                int(new)
            }
            ["HSETNX", _, field, value] => {
                if fields.contains_key(*field) {
                    return int(0);
                }
                fields.insert((*field).into(), (*value).into());
                self.put_fields(key, fields, now);
                int(1)
            }
            ["HINCRBY", _, field, by] => {
                let sum = fields.get(*field).map_or(0, |value| number(value)) + number(by);
                fields.insert((*field).into(), sum.to_string());
                self.put_fields(key, fields, now);
                Answer::Int(sum)
            }
            ["HDEL", _, gone @ ..] => {
                fields.retain(|field, _| !gone.contains(&field.as_str()));
                let removed = before - fields.len();
                match removed {
                    0 => {}
                    _ if fields.is_empty() => self.remove(key),
                    _ => self.put_fields(key, fields, now),
                }
                int(removed)
            }
            ["HGET", _, field] => match fields.get(*field) {
                Some(value) => Answer::text(&Text::of(value.as_bytes())),
                None => Answer::Nil,
            },
            ["HLEN", _] => int(before),
            ["HGETALL", _] => Answer::Fields(fields),
            other => panic!("the model does not know {other:?}"),
        }
    }

    fn put_fields(&mut self, key: &str, fields: Fields, now: Now) {
        self.put(key, Value::Fields(Held::new(fields)), self.expiry(key, now));
    }
}
