// Package library is not a plugin: it has no main function.
package library
