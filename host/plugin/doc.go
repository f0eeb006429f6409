// Package plugin finds, starts, asks and stops plugins: the host's side of the
// process boundary.
//
// A plugin is somebody else's program. It may crash, hang, be stopped, print garbage or
// answer with an ill-typed program: all that comes of it is one clear [Error] within the
// time limits. No plugin outlives the host, however the host ends. The answers of plugins
// are checked here and handed on.
//
// Package sdk/client speaks the protocol, over hashicorp/go-plugin. Both sides make a
// certificate for the one connection and use TLS; a plugin in another language may leave
// that out. The socket lies in a directory that only the user can
// enter. docs/security.md lists what plugins may do, and what hostile ones get.
package plugin
