// Package rundir defines run directories: it names the files in one, finds the files outside it on
// which a run depends, and lists runs. The contents of the files are defined in host/train,
// host/train/config, host/train/metrics and host/train/checkpoint.
package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/huggingface"
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
	TrajectoryFile = "trajectory.jsonl"       // the optimization path of a problem without data
	SamplesFile    = "samples.jsonl"          // texts that a language model generated during training
	TokenizerFile  = tokenizer.DefinitionFile // the tokenizer of the data, unless it is built in
	ModelFile      = "config.json"            // from the Hugging Face checkpoint of the initial model
	checkpointDir  = "checkpoints"
	tensorboardDir = "tensorboard"
)

// Dir is a run directory on a file system.
type Dir struct{ vfs.Path }

// At returns the run directory with that name on the operating system's file system.
func At(dir string) Dir { return Dir{vfs.At(dir)} }

// On returns the run directory with that name on a file system; nil means the operating system's.
func On(files vfs.FS, dir string) Dir { return Dir{vfs.On(files, dir)} }

// Config returns the path of the configuration.
func (d Dir) Config() vfs.Path { return d.Join(ConfigFile) }

// Provenance returns the path of the file with the provenance of the run.
func (d Dir) Provenance() vfs.Path { return d.Join(ProvenanceFile) }

// Metrics returns the path of the file of records.
func (d Dir) Metrics() vfs.Path { return d.Join(MetricsFile) }

// Summary returns the path of the summary.
func (d Dir) Summary() vfs.Path { return d.Join(SummaryFile) }

// Trajectory returns the path of the file with the points visited, for a problem without data.
func (d Dir) Trajectory() vfs.Path { return d.Join(TrajectoryFile) }

// Samples returns the path of the texts that a language model generated during training.
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
	names := append([]string{ConfigFile, ProvenanceFile, SummaryFile, ModelFile}, tokenizer.Files...)
	return atomicfile.RemoveAbandoned(d.Path, func(name string) bool {
		return slices.Contains(names, name)
	})
}

// Lock returns the path of the file that is locked while the run is being trained.
func (d Dir) Lock() vfs.Path { return d.Join(vfs.LockFile) }

// Names in the directory of a study, which contains run directories.
const (
	StudyFile  = "study.toml" // the definition of the study
	StudyCells = "cells"      // a directory for each cell; for a trained cell, its run directory
	StudyModel = "model"      // in the directory of a cell that is quantized without training: its run
	StudyStale = "stale"      // run directories that were moved away because they are outdated
)

// LoadConfig loads the configuration of a run.
func (d Dir) LoadConfig() (*config.Config, error) {
	cfg, err := config.Load(d.Config().Name, nil)
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%s is a file: want a run directory, such as runs/NAME", d)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is not a run directory: it has no %s", d, ConfigFile)
	}
	return cfg, err
}

// WriteFiles writes files into a run directory. It fails if one exists with different content.
func WriteFiles(to Dir, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file, content := to.Join(name), files[name]
		if err := file.Dir().MkdirAll(); err != nil {
			return err
		}
		if err := atomicfile.CheckOurs(file, atomicfile.Is(content)); err != nil {
			return err
		}
		if err := atomicfile.WriteBytes(file, content); err != nil {
			return err
		}
	}
	return nil
}

// Limits of the files that are copied into run directories.
const (
	maxFile      = 128 << 20 // bytes; the tokenizer.json of large published models has about 35 MB
	maxTemplates = 100       // in [tokenizer.TemplateFolder]
)

// ReadFiles adds the contents of the named files in folder to files, except those that do not exist
// or are in files already. With the chat template, it adds those in [tokenizer.TemplateFolder].
// Links are followed, as in a cache of the Hub, but not in a run directory.
func ReadFiles(files map[string][]byte, folder vfs.Path, names []string) error {
	if slices.Contains(names, tokenizer.TemplateFile) {
		entries, err := folder.Join(tokenizer.TemplateFolder).ReadDir()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		var more []string
		for _, e := range entries {
			if filepath.Ext(e.Name()) == filepath.Ext(tokenizer.TemplateFile) {
				more = append(more, path.Join(tokenizer.TemplateFolder, e.Name()))
			}
		}
		if len(more) > maxTemplates {
			return fmt.Errorf("%s has %d chat templates, want at most %d",
				folder.Join(tokenizer.TemplateFolder), len(more), maxTemplates)
		}
		names = slices.Concat(names, more)
	}
	for _, name := range names {
		if _, have := files[name]; have {
			continue
		}
		if err := checkLinks(folder, name); err != nil {
			return err
		}
		content, err := folder.Join(name).ReadSmallFile(maxFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		files[name] = content
	}
	return nil
}

// ReadDescription is [huggingface.ReadDescription], with links as in [ReadFiles].
func ReadDescription(dir string) (huggingface.Description, error) {
	if err := checkLinks(vfs.At(dir), huggingface.DescriptionFiles...); err != nil {
		return huggingface.Description{}, err
	}
	return huggingface.ReadDescription(vfs.At(dir))
}

func checkLinks(folder vfs.Path, names ...string) error {
	run, err := Dir{folder}.Config().Exists()
	for _, name := range names {
		if run && err == nil {
			err = folder.Join(name).CheckLinks()
		}
	}
	return err
}
