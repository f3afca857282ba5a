//! Strings. SCAFFOLD.
