package config

// Finding is what plugins and data, as they are now, say about a configuration. It is made
// by host/assembly, which asks them, for those who compare runs with it.
type Finding struct {
	// Err is why the configuration could not be trained, such as [Errors]; nil: it could.
	Err error
	// Stale says in what the run in its directory, train.out, differs from what would be
	// trained there now; empty: in nothing, or there is no run.
	Stale string
	// Programs are the hashes of the programs that it would be trained with, by name, and
	// Data those of the token files, by path.
	Programs, Data map[string]string
}
