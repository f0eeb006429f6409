package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cage-qat/cage/host/assembly"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
)

// provenance is what run.toml does not say about how a run came to be.
type provenance struct {
	Run   string           `json:"run,omitempty"` // identity
	Build engine.BuildInfo `json:"build"`
	// Directory is the working directory, to which the configuration's paths are relative.
	Directory string `json:"directory,omitempty"`
	// Tokenizer is what the token files were made with; nil without data.
	Tokenizer *tokenizer.Info `json:"tokenizer,omitempty"`
	// Data are the token files, once their content is known to have these hashes.
	Data    []verifiedFile  `json:"data,omitempty"`
	Plugins []assembly.Used `json:"plugins"`
	// Programs are the hashes of the programs; see assembly.Programs.Hashes.
	Programs map[string]string `json:"programs"`
}

// describe writes what there is to say of the run before its first step. run.toml makes
// the directory that of a run and comes last: with it, everything is there.
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
	p := provenance{Run: r.identity, Build: r.device.BuildInfo(), Data: r.verified, Plugins: r.programs.Used, Programs: r.programs.Hashes()}
	var err error
	if p.Directory, err = os.Getwd(); err != nil {
		return err
	}
	if r.data != nil {
		info := r.data.Train.Header().Tokenizer
		p.Tokenizer = &info
	}
	about, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(r.dir.Provenance(), append(about, '\n'))
}

// keepTokenizer puts a copy of the tokenizer into the run directory, so that the run
// can be used without its data.
func (r *run) keepTokenizer() error {
	if r.data == nil {
		return nil
	}
	info := r.data.Train.Header().Tokenizer
	kept, err := r.dir.Tokenizer().ReadFile()
	switch {
	case err == nil && info.Check(kept) == nil:
		return nil // the run is resumed
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	content, err := r.data.Definition(r.cfg)
	switch {
	case err != nil && r.cfg.Data.Tokenizer == "":
		r.log.Warn("the run directory gets no copy of the tokenizer, so it cannot generate text", "error", err)
		return nil
	case err != nil || content == nil:
		return err
	}
	return atomicfile.WriteBytes(r.dir.Tokenizer(), content)
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
	if err := json.Unmarshal(text, p); err != nil {
		return nil, &descriptionError{fmt.Errorf("what the run was made of cannot be read: %s: %w", path, err)}
	}
	return p, nil
}
