//! Flat memory for the keys and short values of a layer.
//!
//! They are copied behind each other into blocks. So a row has no allocation and no reference count of its own, its bytes lie
//! near those of its neighbours in time, and all are freed with a few calls, however many there are. The room of a value
//! that was given up is used again for the next one of about its length: one that is written again and again takes
//! two rooms in turn.

/// Bytes of a block.
const BLOCK: usize = 64 << 10;
/// Rooms for values have a multiple of this many bytes.
const ALIGN: usize = 8;
/// The longest value that has its room here.
pub(super) const SHORT: usize = 256;

/// Where a key or value begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    block: u32,
    at: u32,
}

/// The room of a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    place: Place,
    /// Bytes of the value.
    length: u16,
}

impl Room {
    /// Bytes of the value.
    pub(super) fn length(self) -> usize {
        self.length.into()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Arena {
    blocks: Vec<Vec<u8>>,
    /// The rooms that are free, by their bytes in units of [`ALIGN`].
    free: Vec<Vec<Place>>,
    held: usize,
}

impl Arena {
    /// Bytes that it has given out, those of free rooms included.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Copies bytes that stay.
    pub(super) fn keep(&mut self, bytes: &[u8]) -> Place {
        self.append(bytes, bytes.len())
    }

    /// The bytes at `place`.
    pub(super) fn bytes(&self, place: Place, length: usize) -> &[u8] {
        let block = self.blocks.get(place.block as usize).map_or(&[][..], |block| block);
        block.get(place.at as usize..place.at as usize + length).unwrap_or_default()
    }

    /// Copies a value of up to [`SHORT`] bytes; None if it is longer.
    pub(super) fn put(&mut self, value: &[u8]) -> Option<Room> {
        let length = u16::try_from(value.len()).ok().filter(|length| usize::from(*length) <= SHORT)?;
        let size = value.len().next_multiple_of(ALIGN);
        let free = self.free.get_mut(size / ALIGN).and_then(Vec::pop);
        let place = match free.and_then(|place| Some((place, self.room_mut(place, value.len())?))) {
            Some((place, room)) => {
                room.copy_from_slice(value);
                place
            }
            None => self.append(value, size),
        };
        Some(Room { place, length })
    }

    /// The value in a room.
    pub(super) fn value(&self, room: Room) -> &[u8] {
        self.bytes(room.place, room.length.into())
    }

    /// Gives a room up.
    pub(super) fn free(&mut self, room: Room) {
        let class = usize::from(room.length).div_ceil(ALIGN);
        if class >= self.free.len() {
            self.free.resize_with(class + 1, Vec::new);
        }
        if let Some(free) = self.free.get_mut(class) {
            free.push(room.place);
        }
    }

    fn room_mut(&mut self, place: Place, length: usize) -> Option<&mut [u8]> {
        let block = self.blocks.get_mut(place.block as usize)?;
        block.get_mut(place.at as usize..place.at as usize + length)
    }

    /// Copies `bytes` into `size` bytes of their own.
    fn append(&mut self, bytes: &[u8], size: usize) -> Place {
        self.held += size;
        let has_room = |block: &Vec<u8>| block.capacity() - block.len() >= size;
        if !self.blocks.last().is_some_and(has_room) {
            self.blocks.push(Vec::with_capacity(size.max(BLOCK)));
        }
        let n = self.blocks.len() - 1;
        let Some(block) = self.blocks.last_mut() else { return Place { block: 0, at: 0 } };
        let at = block.len();
        block.extend_from_slice(bytes);
        block.resize(at + size, 0);
        Place { block: n as u32, at: at as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Rng;

    /// Hazard: two values share bytes.
    #[test]
    fn what_is_kept_stays() {
        let (mut arena, mut rng) = (Arena::default(), Rng::seeded(5));
        let mut rooms: Vec<(Room, Vec<u8>)> = Vec::new();
        let mut keys: Vec<(Place, Vec<u8>)> = Vec::new();
        let mut text = |n: u64| -> Vec<u8> { (0..n).map(|_| rng.below(256) as u8).collect() };
        for n in 0..20_000_usize {
            let length = text(2).iter().map(|b| u64::from(*b)).sum::<u64>() % 257;
            let value = text(length);
            match n % 3 {
                0 => keys.push((arena.keep(&value), value)),
                1 => rooms.push((arena.put(&value).unwrap(), value)),
                _ => {
                    let (room, value) = rooms.swap_remove(n * 7 % rooms.len());
                    assert_eq!(arena.value(room), value);
                    if n % 2 == 0 {
                        arena.free(room);
                    } else {
                        rooms.push((room, value));
                    }
                }
            }
        }
        assert!(rooms.iter().all(|(room, value)| arena.value(*room) == value));
        assert!(keys.iter().all(|(place, key)| arena.bytes(*place, key.len()) == key));
        assert!(arena.blocks.len() > 1);
    }

    #[test]
    fn a_value_that_is_written_again_takes_no_more_room() {
        let mut arena = Arena::default();
        let mut last = arena.put(&[1; 50]).unwrap();
        for n in 0..10_000_u32 {
            let next = arena.put(&vec![n as u8; 49 + (n as usize) % 8]).unwrap();
            arena.free(std::mem::replace(&mut last, next));
        }
        assert_eq!(arena.blocks.len(), 1);
        assert!(arena.blocks[0].len() <= 3 * 64, "{}", arena.blocks[0].len());
        assert!(arena.put(&[0; SHORT + 1]).is_none());
    }

    #[test]
    fn a_key_may_be_longer_than_a_block() {
        let mut arena = Arena::default();
        let (small, long) = (arena.keep(b"small"), arena.keep(&[7; 2 * BLOCK]));
        let next = arena.keep(b"next");
        assert_eq!(arena.bytes(small, 5), b"small");
        assert_eq!(arena.bytes(long, 2 * BLOCK), [7; 2 * BLOCK]);
        assert_eq!(arena.bytes(next, 4), b"next");
    }
}
