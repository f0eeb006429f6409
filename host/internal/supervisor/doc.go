// Package supervisor keeps a plugin and all its descendants together: on Linux the
// program runs below a small process of its own, which is this executable again and
// does nothing else.
//
// Processes that a plugin starts can leave its process group (setsid) and lose their
// parent; then they belong to nobody, and a host that ends the group does not find
// them. The supervisor is the subreaper of all below it, so that they come back to it,
// and it ends only when none is left. It lives as long as the thread that started it:
// when the host is killed, it ends them, too. It also sets the limit of memory, before
// the plugin's first instruction, for the plugin and each of its descendants.
//
// What remains is a plugin that kills its supervisor first: both run with the same
// rights. Then the kernel ends the plugin itself, but not what it has started.
//
// Other systems have neither subreapers nor signals on the death of a parent; there,
// this package only puts into words why a program could not be started.
package supervisor
