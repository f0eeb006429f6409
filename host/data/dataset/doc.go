// Package dataset reads and writes token files.
package dataset
