package model

import "math"

// A Network is a [Language] model that is fully described by its settings, so that it can also be computed without
// graphs.
type Network interface {
	Language

	// Network returns the settings, with all defaults that [Settings.FillIn] fills in.
	Network() Settings
}

var _ Network = (*transformer)(nil)

// Network implements [Network].
func (m *transformer) Network() Settings { return m.Settings }

// Turns returns the cosines and sines of the angles of the rotary position embedding, for positions from 0 on: each has
// shape [positions, size/2], where size is that of a head.
func (s Settings) Turns(positions int) (cos, sin []float32) {
	return s.byPosition(positions, math.Cos), s.byPosition(positions, math.Sin)
}
