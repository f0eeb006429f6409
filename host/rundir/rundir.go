// Package rundir names what is in a run directory, for all that write and read one, and
// looks for the files outside of it that a run depends on. What the files hold is the
// business of others: host/config, host/metrics, host/checkpoint and host/train.
package rundir

import "path/filepath"

// Names inside a run directory.
const (
	ConfigFile     = "run.toml"         // the resolved configuration
	ProvenanceFile = "provenance.json"  // build, plugins and hashes of programs
	MetricsFile    = "metrics.jsonl"    // the records
	SummaryFile    = "summary.json"     // what came out
	TrajectoryFile = "trajectory.jsonl" // the points that a problem without data went through
	TokenizerFile  = "tokenizer.json"   // the tokenizer of the data, unless it is built in
	checkpointDir  = "checkpoints"
	lockFile       = ".lock"
)

// Config is the path of the configuration of the run in dir.
func Config(dir string) string { return filepath.Join(dir, ConfigFile) }

// Provenance is the path of the account of what computed the run.
func Provenance(dir string) string { return filepath.Join(dir, ProvenanceFile) }

// Metrics is the path of the records.
func Metrics(dir string) string { return filepath.Join(dir, MetricsFile) }

// Summary is the path of the summary.
func Summary(dir string) string { return filepath.Join(dir, SummaryFile) }

// Trajectory is the path of the points of a problem without data.
func Trajectory(dir string) string { return filepath.Join(dir, TrajectoryFile) }

// Tokenizer is the path of the copy of the tokenizer.
func Tokenizer(dir string) string { return filepath.Join(dir, TokenizerFile) }

// Checkpoints is the directory of checkpoints.
func Checkpoints(dir string) string { return filepath.Join(dir, checkpointDir) }

// Lock is the path of the file that is locked while the run is trained.
func Lock(dir string) string { return filepath.Join(dir, lockFile) }
