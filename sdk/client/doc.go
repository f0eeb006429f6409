// Package client is the host's end of the plugin protocol: what go-plugin needs
// to connect to a plugin, and clients that speak in the types of package sdk.
//
// It is for hosts, not for authors of plugins. Finding, starting and stopping
// processes is not done here, nor is any policy: the caller gives the deadline of
// each call and the limits of each program.
package client
