//! Sets. SCAFFOLD.
