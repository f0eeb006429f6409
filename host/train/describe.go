package train

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// describe writes the description of the run before its first step. run.toml comes last:
// where it is, the rest of the description is complete.
func (r *run) describe() error {
	text, err := r.cfg.Encode()
	if err != nil {
		return err
	}
	if err := r.keepTokenizer(); err != nil {
		return err
	}
	if err := r.writeProvenance(); err != nil {
		return err
	}
	return atomicfile.WriteBytes(r.dir.Config(), text)
}

func (r *run) writeProvenance() error {
	p := &provenance.Record{Run: r.identity, Build: r.Device.BuildInfo(), Initial: r.initial, Teacher: r.teacher, Data: r.verified, Plugins: r.Programs.Used, Programs: r.Programs.Hashes()}
	if r.data != nil {
		info := r.data.Train.Tokenizer()
		p.Tokenizer = &info
	}
	return p.Write(r.dir)
}

// keepTokenizer puts a copy of the tokenizer into the run directory, so that the run
// can be used without its data.
func (r *run) keepTokenizer() error {
	if r.data == nil {
		return nil
	}
	info := r.data.Train.Tokenizer()
	kept, err := r.dir.Tokenizer().ReadFile()
	switch {
	case err == nil && info.Check(kept) == nil:
		return nil // the run is resumed
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	content, err := r.data.Definition(r.cfg)
	// Conversations have their template beside them, even those in bytes.
	if content != nil || r.cfg.Data.Kind == config.KindChat {
		if err := rundir.CopyFiles(r.dir, vfs.At(r.tokenizerFolder()), tokenizer.CompanionFiles); err != nil {
			return err
		}
	}
	switch {
	case err != nil && r.cfg.Data.Tokenizer == "":
		r.log.Warn("the run directory gets no copy of the tokenizer, so it cannot generate text", "error", err)
		return nil
	case err != nil || content == nil:
		return err
	}
	return atomicfile.WriteBytes(r.dir.Tokenizer(), content)
}

// tokenizerFolder is where the names of special tokens and the template of conversations are.
func (r *run) tokenizerFolder() string {
	if path := r.cfg.Data.Tokenizer; path != "" && r.cfg.Data.Kind == config.KindText {
		return filepath.Dir(path)
	}
	return filepath.Dir(r.data.Train.Path())
}
