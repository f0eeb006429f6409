// Package rundir knows run directories: the names of what is in one, for all that write
// and read it; where the files outside of it are that a run depends on; and which runs
// there are, quickly even among thousands. What was read is kept in an index beside the
// runs and read again only for those that have changed.
//
// What the files hold is the business of others: host/config, host/metrics,
// host/checkpoint and host/train. Nothing here changes them, and the index is a cache: it
// may be deleted at any time.
package rundir

import (
	"slices"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Names inside a run directory.
const (
	ConfigFile     = config.RunFile           // the resolved configuration
	ProvenanceFile = "provenance.json"        // build, plugins and hashes of programs
	MetricsFile    = "metrics.jsonl"          // the records
	SummaryFile    = "summary.json"           // what came out
	TrajectoryFile = "trajectory.jsonl"       // the points that a problem without data went through
	SamplesFile    = "samples.jsonl"          // texts that a language model wrote while it was trained
	TokenizerFile  = tokenizer.DefinitionFile // the tokenizer of the data, unless it is built in
	checkpointDir  = "checkpoints"
	tensorboardDir = "tensorboard"
)

// Dir is a run directory on a file system.
type Dir struct{ vfs.Path }

// At is the run directory of that name on the operating system's file system.
func At(dir string) Dir { return Dir{vfs.At(dir)} }

// On is the run directory of that name on a file system; nil means the operating system's.
func On(files vfs.FS, dir string) Dir { return Dir{vfs.On(files, dir)} }

// Config is the file of the configuration.
func (d Dir) Config() vfs.Path { return d.Join(ConfigFile) }

// Provenance is the file of the account of what computed the run.
func (d Dir) Provenance() vfs.Path { return d.Join(ProvenanceFile) }

// Metrics is the file of the records.
func (d Dir) Metrics() vfs.Path { return d.Join(MetricsFile) }

// Summary is the file of the summary.
func (d Dir) Summary() vfs.Path { return d.Join(SummaryFile) }

// Trajectory is the file of the points of a problem without data.
func (d Dir) Trajectory() vfs.Path { return d.Join(TrajectoryFile) }

// Samples is the file of the texts that a language model wrote while it was trained.
func (d Dir) Samples() vfs.Path { return d.Join(SamplesFile) }

// TensorBoard is the directory of event files.
func (d Dir) TensorBoard() vfs.Path { return d.Join(tensorboardDir) }

// Tokenizer is the copy of the tokenizer.
func (d Dir) Tokenizer() vfs.Path { return d.Join(TokenizerFile) }

// Checkpoints is the directory of checkpoints.
func (d Dir) Checkpoints() vfs.Path { return d.Join(checkpointDir) }

// RemoveAbandoned removes what is left of files of the run directory whose writer was
// killed. The caller holds the lock.
func (d Dir) RemoveAbandoned() error {
	names := append([]string{ConfigFile, ProvenanceFile, SummaryFile}, tokenizer.Files...)
	return atomicfile.RemoveAbandoned(d.Path, func(name string) bool { return slices.Contains(names, name) })
}

// Lock is the file that is locked while the run is trained.
func (d Dir) Lock() vfs.Path { return d.Join(vfs.LockFile) }
