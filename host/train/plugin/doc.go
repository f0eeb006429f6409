// Package plugin finds, starts, queries and stops plugins. It is the host's side of the
// process boundary.
//
// A plugin is somebody else's program. It may crash, hang, be stopped, print garbage or
// answer with an ill-typed program: all that results is one clear [Error] within the time
// limits. No plugin outlives the host, however the host ends. This package checks the
// plugins' answers and hands them on; it does not use them.
//
// Package sdk/client speaks the protocol, over hashicorp/go-plugin. Both sides create a
// certificate for the one connection and use TLS; a plugin in another language may do
// without. The socket lies in a directory that only the user can enter. docs/security.md
// lists what plugins may do, and what happens with hostile ones.
package plugin
