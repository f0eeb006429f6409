package model

import "github.com/cage-qat/cage/host/model/architecture"

// A Network is a [Language] model that is fully described by its settings, so that it can also be computed without
// graphs.
type Network interface {
	Language

	// Network returns the settings, with all defaults that [architecture.Settings.FillIn] fills in.
	Network() architecture.Settings
}

var _ Network = (*transformer)(nil)

// Network implements [Network].
func (m *transformer) Network() architecture.Settings { return m.Settings }
