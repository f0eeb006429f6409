package train

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// provenance is what run.toml does not say about how a run came to be.
type provenance struct {
	Run   string           `json:"run,omitempty"` // identity
	Build engine.BuildInfo `json:"build"`
	// Directory is the working directory, to which the configuration's paths are relative.
	Directory string `json:"directory,omitempty"`
	// Initial is where the weights before the first step were read from; nil if they were
	// drawn at random.
	Initial *origin `json:"initial,omitempty"`
	// Teacher is where the weights of the teacher are read from; nil if there is none.
	Teacher *origin `json:"teacher,omitempty"`
	// Posttrained says how weights were quantized after training; nil if they were not.
	Posttrained *Posttrained `json:"posttrained,omitempty"`
	// Tokenizer is the tokenizer that the token files were made with; nil without data.
	Tokenizer *tokenizer.Info `json:"tokenizer,omitempty"`
	// Data are the token files, listed once their content has been verified against these
	// hashes.
	Data    []verifiedFile  `json:"data,omitempty"`
	Plugins []assembly.Used `json:"plugins"`
	// Programs are the hashes of the programs; see assembly.Programs.Hashes.
	Programs map[string]string `json:"programs"`
}

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
	p := &provenance{Run: r.identity, Build: r.device.BuildInfo(), Initial: r.initial, Teacher: r.teacher, Data: r.verified, Plugins: r.programs.Used, Programs: r.programs.Hashes()}
	if r.data != nil {
		info := r.data.Train.Tokenizer()
		p.Tokenizer = &info
	}
	return p.write(r.dir)
}

// write puts it into a run directory, with the working directory added.
func (p *provenance) write(dir rundir.Dir) error {
	var err error
	if p.Directory, err = os.Getwd(); err != nil {
		return err
	}
	return atomicfile.WriteJSON(dir.Provenance(), p)
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
		if err := copyFiles(r.dir, vfs.At(r.tokenizerFolder()), tokenizer.Beside); err != nil {
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

// readProvenance reads what a run directory says of how it came to be.
func readProvenance(dir rundir.Dir) (*provenance, error) {
	path := dir.Provenance()
	text, err := path.ReadFile()
	if err != nil {
		err = fmt.Errorf("what the run was made of cannot be read: %w", err)
		if errors.Is(err, fs.ErrNotExist) {
			err = &descriptionError{err}
		}
		return nil, err
	}
	p := &provenance{}
	if err := plainjson.Unmarshal(text, p); err != nil {
		return nil, &descriptionError{fmt.Errorf("what the run was made of cannot be read: %s: %w", path, err)}
	}
	return p, nil
}
