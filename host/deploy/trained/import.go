package trained

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/resources"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/program"
)

// usualContext is the default context of a model that has at least as many positions.
const usualContext = 2048

// Import converts a Hugging Face checkpoint, which is a directory, or a GGUF file to a run
// directory: a run of zero training steps whose state is the model. context is the sequence length
// in tokens; 0 means the model's number of positions, but at most 2048. If out is empty, the
// checkpoint is only checked, and nothing is written.
func Import(ctx context.Context, from, out string, context int) (*huggingface.Checkpoint, error) {
	if out != "" {
		if err := atomicfile.CheckDir(vfs.At(out)); err != nil {
			return nil, err
		}
	}
	var c *huggingface.Checkpoint
	var cfg *config.Config
	var files map[string][]byte // nil: those in the directory
	var err error
	info, missing := os.Stat(from)
	if filepath.Ext(from) == ".gguf" && (missing != nil || !info.IsDir()) {
		if c, files, err = export.OpenGGUF(vfs.At(from), context); err == nil {
			c, cfg, err = configure(c, from, out, context)
		}
	} else {
		c, cfg, err = openHub(from, out, context)
	}
	if err != nil {
		return nil, err
	}
	err = c.Verify()
	if err == nil && out != "" {
		err = atomicfile.WriteDir(vfs.At(out), func(to vfs.Path) error {
			record := &Record{}
			if record.Initial, err = provenance.HubOrigin(vfs.At(from), c); err != nil {
				return err
			}
			if files == nil {
				if files, err = ModelFiles(from); err != nil {
					return err
				}
			}
			if record.Tokenizer, err = tokenizerOf(from, files); err != nil {
				return err
			}
			device, err := engine.Open(device.CPU, engine.Options{})
			if err != nil {
				return err
			}
			defer device.Close()
			record.Build = device.BuildInfo()
			run := &ModelRun{Config: cfg, Method: cfg.Method, Record: record,
				Params: c.Params(), Values: c.Values, Files: files}
			return run.Write(ctx, rundir.Dir{Path: to})
		})
	}
	return c, errors.Join(err, c.Close())
}

// openHub opens the Hugging Face checkpoint in dir; see [Import].
func openHub(dir, out string, context int) (*huggingface.Checkpoint, *config.Config, error) {
	if context == 0 {
		// Errors in the checkpoint are reported when it is opened.
		if c, err := huggingface.ReadConfig(vfs.At(dir), usualContext); err == nil {
			context = min(usualContext, c.MaxPositions)
		}
	}
	c, err := huggingface.Open(vfs.At(dir), huggingface.Options{Context: context})
	if err != nil {
		return nil, nil, err
	}
	return configure(c, dir, out, context)
}

// configure returns the configuration of a run that holds a checkpoint.
func configure(c *huggingface.Checkpoint, from, out string, context int) (
	*huggingface.Checkpoint, *config.Config, error) {
	positions := c.Config.MaxPositions
	context = cmp.Or(context, min(usualContext, positions))
	if context > positions {
		err := fmt.Errorf("%s has %d positions: want a context of at most that, found %d",
			from, positions, context)
		return nil, nil, errors.Join(err, c.Close())
	}
	cfg, err := config.Imported(&config.Initial{Dir: from, Settings: c.Config.Settings,
		MaxPositions: positions}, context, cmp.Or(out, from))
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, cfg, nil
}

// ModelFiles returns the files of a model's directory that describe it and its tokenizer, by name.
func ModelFiles(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	names := slices.Concat(tokenizer.Files, huggingface.DescriptionFiles)
	return files, rundir.ReadFiles(files, vfs.At(dir), names)
}

// tokenizerOf describes the tokenizer in the files of a model at path; nil if it has none.
func tokenizerOf(path string, files map[string][]byte) (*tokenizer.Info, error) {
	if files[tokenizer.DefinitionFile] == nil {
		return nil, nil
	}
	tok, err := tokenizer.ReadHuggingFace(files[tokenizer.DefinitionFile],
		files[tokenizer.ConfigFile])
	if err != nil {
		return nil, fmt.Errorf("%s: tokenizer: %w", path, err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	info := tok.Info()
	info.Name = strings.TrimSuffix(filepath.Base(path), ".gguf")
	return &info, nil
}

// ModelRun is a run without training steps, whose state is an existing model.
type ModelRun struct {
	Config *config.Config
	Method cage.Settings // the method with which the model was trained
	Record *Record
	Params []architecture.Param
	// Values returns the elements of a parameter; it is called when the parameter is written.
	Values func(param string) ([]float32, error)
	// Precomputed holds the tensors of the parameters that are not read with Values.
	Precomputed map[string][]safetensors.Tensor
	// Began is when the making of the model began, for its cost; zero if that is not told.
	Began time.Time
	// Files holds the files of the tokenizer and the description of the model, by name.
	Files map[string][]byte
}

// Write writes the run to a directory, which is renamed to train.out once it is complete. run.toml,
// which makes it a run directory, is written last.
func (r *ModelRun) Write(ctx context.Context, to rundir.Dir) error {
	r.Record.Run = provenance.NewIdentity()
	err := r.save(ctx, to)
	if err != nil {
		return err
	}
	if err := rundir.WriteFiles(to, r.Files); err != nil {
		return err
	}
	if r.Record.Directory == "" {
		if r.Record.Directory, err = os.Getwd(); err != nil {
			return err
		}
	}
	if err := atomicfile.WriteJSON(to.Provenance(), r.Record); err != nil {
		return err
	}
	out := rundir.At(r.Config.Train.Out)
	summary := metrics.Summary{Name: out.Base(), Completed: true, Dir: out.Name,
		Method: r.Method.Name, Settings: r.Method.Own(),
		Parameters:   int64(architecture.CountParams(r.Params, nil)),
		NonEmbedding: int64(architecture.NonEmbedding(r.Params))}
	if !r.Began.IsZero() {
		summary.Seconds = metrics.Number(time.Since(r.Began).Seconds())
		summary.ProcessorSeconds = metrics.Number(resources.ProcessorTime().Seconds())
		summary.PeakMemory = metrics.Number(resources.PeakMemory())
	}
	if err := metrics.WriteSummary(to.Summary(), summary); err != nil {
		return err
	}
	return atomicfile.WriteBytes(to.Config(), r.Config.Encode())
}

func (r *ModelRun) save(ctx context.Context, to rundir.Dir) error {
	meta, err := provenance.Metadata(r.Record.Run, provenance.Progress{}, r.Record.Build)
	if err != nil {
		return err
	}
	state := checkpoint.State{Meta: meta}
	for _, p := range r.Params {
		if ready := r.Precomputed[p.Name]; ready != nil {
			state.Tensors = append(state.Tensors, ready...)
			continue
		}
		read := func() ([]float32, error) { return r.Values(p.Name) }
		name := program.KindParam.Of(p.Name)
		state.Tensors = append(state.Tensors, safetensors.Lazy(name, p.Dims, read))
	}
	_, err = checkpoint.Save(ctx, to.Checkpoints(), state)
	return err
}
