// Package architecture says what models there are: the settings of each kind and their keys, presets, the parameters that
// follow from the settings and how these start, and the angles of rotary positions. It is numbers and names alone: package
// host/model computes with them, in graphs, and whoever only reads a configuration or a checkpoint needs no tensor engine.
package architecture
