//! The registry of connected clients: CLIENT LIST, CLIENT KILL. SCAFFOLD of the interface.

/// One connected client, shared between its connection and the registry.
#[derive(Debug, Default)]
pub struct ClientHandle {}

/// All connected clients.
#[derive(Debug, Default)]
pub struct Clients {}
