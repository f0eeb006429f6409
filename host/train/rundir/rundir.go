// Package rundir knows run directories: the names of the files in one, for everything
// that writes and reads it; how to find the files outside it on which a run depends; and
// which runs there are, of which a [Lister] reads again only those that have changed.
//
// The contents of the files are defined elsewhere: in host/train/config, host/train/metrics,
// host/train/checkpoint and host/train. Nothing here changes them.
package rundir

import (
	"slices"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Names inside a run directory.
const (
	ConfigFile     = config.RunFile           // the resolved configuration
	ProvenanceFile = "provenance.json"        // build, plugins and hashes of programs
	MetricsFile    = "metrics.jsonl"          // the records
	SummaryFile    = "summary.json"           // the results
	TrajectoryFile = "trajectory.jsonl"       // the points visited by a problem without data
	SamplesFile    = "samples.jsonl"          // texts that a language model wrote during training
	TokenizerFile  = tokenizer.DefinitionFile // the tokenizer of the data, unless it is built in
	checkpointDir  = "checkpoints"
	tensorboardDir = "tensorboard"
)

// Dir is a run directory on a file system.
type Dir struct{ vfs.Path }

// At returns the run directory with that name on the operating system's file system.
func At(dir string) Dir { return Dir{vfs.At(dir)} }

// On returns the run directory with that name on a file system; nil means the operating
// system's.
func On(files vfs.FS, dir string) Dir { return Dir{vfs.On(files, dir)} }

// Config returns the path of the configuration.
func (d Dir) Config() vfs.Path { return d.Join(ConfigFile) }

// Provenance returns the path of the file that says what computed the run.
func (d Dir) Provenance() vfs.Path { return d.Join(ProvenanceFile) }

// Metrics returns the path of the records.
func (d Dir) Metrics() vfs.Path { return d.Join(MetricsFile) }

// Summary returns the path of the summary.
func (d Dir) Summary() vfs.Path { return d.Join(SummaryFile) }

// Trajectory returns the path of the points visited by a problem without data.
func (d Dir) Trajectory() vfs.Path { return d.Join(TrajectoryFile) }

// Samples returns the path of the texts that a language model wrote during training.
func (d Dir) Samples() vfs.Path { return d.Join(SamplesFile) }

// TensorBoard returns the path of the directory of event files.
func (d Dir) TensorBoard() vfs.Path { return d.Join(tensorboardDir) }

// Tokenizer returns the path of the copy of the tokenizer.
func (d Dir) Tokenizer() vfs.Path { return d.Join(TokenizerFile) }

// Checkpoints returns the path of the directory of checkpoints.
func (d Dir) Checkpoints() vfs.Path { return d.Join(checkpointDir) }

// RemoveAbandoned removes the unfinished files in the run directory whose writer was
// killed. The caller must hold the lock.
func (d Dir) RemoveAbandoned() error {
	names := append([]string{ConfigFile, ProvenanceFile, SummaryFile}, tokenizer.Files...)
	return atomicfile.RemoveAbandoned(d.Path, func(name string) bool { return slices.Contains(names, name) })
}

// Lock returns the path of the file that is locked while the run is being trained.
func (d Dir) Lock() vfs.Path { return d.Join(vfs.LockFile) }
