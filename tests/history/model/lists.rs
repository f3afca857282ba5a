//! The effect of commands on lists.

use super::commands::{int, number};
use super::values::Text;
use super::{Answer, Held, Now, State, Value};

type Elements = Vec<String>;

impl State {
    pub(super) fn apply_to_list(&mut self, words: &[&str], now: Now) -> Answer {
        let key = words[1];
        let mut list = self.elements(key, now);
        let len = list.len();
        match words {
            ["LPUSH", _, new @ ..] => {
                new.iter().for_each(|element| list.insert(0, (*element).into()));
                self.put_elements(key, list, now);
                int(len + new.len())
            }
            ["RPUSH", _, new @ ..] => {
                list.extend(new.iter().map(|element| String::from(*element)));
                self.put_elements(key, list, now);
                int(len + new.len())
            }
            ["LPOP" | "RPOP", _, ..] if list.is_empty() => {
                if words.len() > 2 {
                    Answer::Aborted
                } else {
                    Answer::Nil
                }
            }
            ["LPOP", _] => self.popped(key, list, 0..1, now),
            ["RPOP", _] => self.popped(key, list, len - 1..len, now),
            ["LPOP", _, n] => {
                let n = len.min(number(n) as usize);
                let kept = list.split_off(n);
                self.put_elements(key, kept, now);
                texts(&list)
            }
            ["LMOVE", from, to, side, other] => {
                if list.is_empty() {
                    return Answer::Nil;
                }
                let element = list.remove(if *side == "LEFT" { 0 } else { len - 1 });
                self.put_elements(from, list, now);
                let mut target = self.elements(to, now);
                target.insert(if *other == "LEFT" { 0 } else { target.len() }, element.clone());
                self.put_elements(to, target, now);
                text(&element)
            }
            ["LINDEX", _, index] => list.get(number(index) as usize).map_or(Answer::Nil, |have| text(have)),
            ["LLEN", _] => int(len),
            ["LRANGE", _, "0", "-1"] => texts(&list),
            words => self.apply_to_middle(words, list, now),
        }
    }

    fn apply_to_middle(&mut self, words: &[&str], mut list: Elements, now: Now) -> Answer {
        let (key, len) = (words[1], list.len());
        match words {
            ["LSET", _, index, element] => match list.get_mut(number(index) as usize) {
                _ if len == 0 => Answer::Error("ERR no such key".into()),
                None => Answer::Error("ERR index out of range".into()),
                Some(place) => {
                    *place = (*element).into();
                    self.put_elements(key, list, now);
                    Answer::Ok
                }
            },
            ["LINSERT", _, side, pivot, element] => {
                let Some(at) = list.iter().position(|have| have == pivot) else {
                    return Answer::Int(if len == 0 { 0 } else { -1 });
                };
                list.insert(at + usize::from(*side == "AFTER"), (*element).into());
                self.put_elements(key, list, now);
                int(len + 1)
            }
            ["LREM", _, "0", element] => {
                list.retain(|have| have != element);
                let removed = len - list.len();
                if removed > 0 {
                    self.put_elements(key, list, now);
                }
                int(removed)
            }
            ["LTRIM", _, "1", "-2"] => {
                if len > 0 {
                    list = list.into_iter().take(len.saturating_sub(1)).skip(1).collect();
                    self.put_elements(key, list, now);
                }
                Answer::Ok
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    /// A command that waits: nil if there is nothing.
    pub(super) fn apply_what_waits(&mut self, words: &[&str], now: Now) -> Answer {
        let with_key = |key: &str, rest: Vec<Answer>| Answer::All([vec![text(key)], rest].concat());
        match words {
            ["BLMOVE", rest @ .., "0"] => self.apply_to_list(&[&["LMOVE"], rest].concat(), now),
            ["BZPOPMIN", key, "0"] => match self.apply_to_ranked(&["ZPOPMIN", key], now) {
                Answer::All(popped) if !popped.is_empty() => with_key(key, popped),
                _ => Answer::Nil,
            },
            [name, keys @ .., "0"] => {
                let Some(key) = keys.iter().find(|key| !self.elements(key, now).is_empty()) else {
                    return Answer::Nil;
                };
                with_key(key, vec![self.apply_to_list(&[&name[1..], key], now)])
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    fn popped(&mut self, key: &str, mut list: Elements, range: std::ops::Range<usize>, now: Now) -> Answer {
        let gone: Elements = list.drain(range).collect();
        self.put_elements(key, list, now);
        gone.first().map_or(Answer::Nil, |have| text(have))
    }

    fn elements(&self, key: &str, now: Now) -> Elements {
        match self.live(key, now).map(|e| &e.value) {
            None => Elements::new(),
            Some(Value::Elements(elements)) => Elements::clone(&elements.0),
            Some(
                Value::Members(_) | Value::Text(_) | Value::Fields(_) | Value::Ranked(_) | Value::Stream(_),
            ) => {
                panic!("{key} is no list")
            }
        }
    }

    /// Without elements, the key goes.
    fn put_elements(&mut self, key: &str, elements: Elements, now: Now) {
        match elements.is_empty() {
            true => self.remove(key),
            false => self.put(key, Value::Elements(Held::new(elements)), self.expiry(key, now)),
        }
    }
}

fn text(element: &str) -> Answer {
    Answer::text(&Text::of(element.as_bytes()))
}

fn texts(elements: &[String]) -> Answer {
    Answer::All(elements.iter().map(|element| text(element)).collect())
}
