package model

import "math"

// A Network is a [Language] model whose settings say all of how it is computed, so that it can be computed in another way
// than by graphs.
type Network interface {
	Language

	// Network returns the settings, with all that [Settings.FillIn] fills in.
	Network() Settings
}

var _ Network = (*transformer)(nil)

// Network implements [Network].
func (m *transformer) Network() Settings { return m.Settings }

// Turns are the cosines and sines of the angles by which positions from 0 on turn the points of a head, [positions,
// size/2] each.
func (s Settings) Turns(positions int) (cos, sin []float32) {
	return s.byPosition(positions, math.Cos), s.byPosition(positions, math.Sin)
}
