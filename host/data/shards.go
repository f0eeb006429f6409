package data

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/vfs"
)

// shards writes documents to one token file, or to several of about the same length.
type shards struct {
	path    vfs.Path // of the one file; the names of several are made of it
	info    tokenizer.Info
	most    int64 // tokens after which a document ends a file; 0: no bound
	writers []*dataset.Writer
	open    bool // the last writer takes more documents
}

func newShards(path vfs.Path, info tokenizer.Info, most int64) *shards {
	return &shards{path: path, info: info, most: most}
}

// write appends a piece of a document.
func (s *shards) write(e encoded) error {
	if !s.open {
		w, err := dataset.NewWriter(s.path, s.info)
		if err != nil {
			return err
		}
		s.writers, s.open = append(s.writers, w), true
	}
	w := s.writers[len(s.writers)-1]
	if e.first {
		if err := w.Begin(); err != nil {
			return err
		}
	}
	if err := w.Append(e.ids); err != nil {
		return err
	}
	if !e.last {
		return nil
	}
	if err := w.End(); err != nil {
		return err
	}
	if s.most > 0 && w.Tokens() >= s.most {
		return s.finish()
	}
	return nil
}

// finish ends the last file.
func (s *shards) finish() error {
	if !s.open {
		return nil
	}
	s.open = false
	return s.writers[len(s.writers)-1].Finish()
}

// commit puts the files in their places.
func (s *shards) commit(bytes int64) (Part, error) {
	part := Part{Bytes: bytes}
	hashes := make([]string, len(s.writers))
	for i, w := range s.writers {
		path := s.path
		if s.most > 0 {
			path = s.path.Dir().Join(shardName(s.path.Base(), i, len(s.writers)))
		}
		h, err := w.CommitAs(path)
		if err != nil {
			return Part{}, err
		}
		part.Documents += h.Documents
		part.Tokens += h.Tokens
		hashes[i] = h.SHA256
		if s.most > 0 {
			part.Shards = append(part.Shards, Shard{path.Base(), h.Documents, h.Tokens, h.SHA256})
		}
	}
	part.SHA256 = dataset.JoinHashes(hashes)
	return part, nil
}

// abort removes what was written and not committed.
func (s *shards) abort() error {
	var errs []error
	for _, w := range s.writers {
		errs = append(errs, w.Abort())
	}
	return errors.Join(errs...)
}

// shardName is the name of a shard, numbered from 0: train-00000-of-00002.tokens.
func shardName(name string, i, of int) string {
	stem, ext, _ := strings.Cut(name, ".")
	return fmt.Sprintf("%s-%05d-of-%05d.%s", stem, i, of, ext)
}

var trainingName = regexp.MustCompile(`^train(-[0-9]{5,}-of-[0-9]{5,})?\.tokens$`)

// ownFile tells whether a file of that name is part of a dataset.
func ownFile(name string) bool {
	return trainingName.MatchString(name) || slices.Contains(tokenizer.Files, name) || name == ValFile || name == ManifestFile
}

// removeStale removes the training files of an earlier preparation that are no part of
// the dataset.
func removeStale(dir vfs.Path, m *Manifest) error {
	entries, err := dir.ReadDir()
	if err != nil {
		return err
	}
	removed := false
	names := m.Train.files(TrainFile)
	for _, e := range entries {
		if trainingName.MatchString(e.Name()) && !slices.Contains(names, e.Name()) {
			if err := dir.Join(e.Name()).Remove(); err != nil {
				return err
			}
			removed = true
		}
	}
	if removed {
		return dir.SyncDir()
	}
	return nil
}
