package config

// Finding is what checking a configuration against the current plugins and data has
// shown. host/train/assembly makes findings; they are used to compare runs with their
// configurations.
type Finding struct {
	// Err says why the configuration could not be trained, for example as [plaintoml.Errors]; nil:
	// it could.
	Err error
	// Stale says how the run in its directory, train.out, differs from what would be
	// trained there now; empty if it does not, or if there is no run.
	Stale string
	// Programs holds the hashes of the programs that it would be trained with, by name,
	// and Data the hashes of the token files, by path.
	Programs, Data map[string]string
}
