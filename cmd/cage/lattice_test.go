package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// kept checks that a type keeps its numbers: kept MODEL FORMAT TYPE PLUGIN PARAMETER=VALUE…
//
// A model is quantized and exported. Import of the export must name the type and a quantizer, with
// which it is quantized again, and exported as the same bytes.
func kept(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: kept MODEL FORMAT TYPE PLUGIN PARAMETER=VALUE…")
	}
	model, l := args[0], lattice{ts, args[1], args[2]}
	dir := strings.Join(args, ".")
	var settings []string
	for _, s := range args[4:] {
		if s == andTrained {
			break
		}
		settings = append(settings, "--set", s)
	}
	first := l.quantized(model, dir, "first", append(settings, "--quantizer", args[3]))
	read, keeping := l.read(first, dir, "read")
	again := l.quantized(read, dir, "again", l.flags(keeping))
	if !bytes.Equal(l.tensors(first), l.tensors(again)) {
		ts.Fatalf("%s: quantized again by %s, it is exported as other bytes", args[2], keeping)
	}
	if args[len(args)-1] == andTrained {
		l.train(first, dir, read, keeping)
	}
}

// andTrained is the last argument of kept if the model is then trained.
const andTrained = "trained"

// train trains a model for ten steps with a quantizer that keeps it. Few bytes of its matrices may
// differ from the export before, and what is exported must be kept, too.
func (l lattice) train(before, dir, read, keeping string) {
	run := filepath.Join(dir, "run", "model") // GGUF holds the last part
	l.ts.Check(l.ts.Exec("cage", "train", "run.toml", "--set", fmt.Sprintf("model.init=%q", read),
		"--set", fmt.Sprintf("train.out=%q", run), "--set", "train.steps=10", "--set",
		"schedule.rate=3e-5", "--set", "quantizer.weights="+keeping))
	export := filepath.Join(dir, "trained.export")
	l.ts.Check(l.ts.Exec("cage", "export", run, "--to", l.format, "--type", strings.ToLower(l.typ),
		"--out", export))
	a, b, different := l.matrices(before), l.matrices(export), 0
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			different++
		}
	}
	if len(a) != len(b) || different > len(a)/4 {
		l.ts.Fatalf("%s: %d of %d bytes differ after ten steps", l.typ, different, len(a))
	}
	l.ts.Logf("%s: %d of %d bytes differ after ten steps", l.typ, different, len(a))
	read, keeping = l.read(export, dir, "read-trained")
	again := l.quantized(read, dir, "trained-again", l.flags(keeping))
	if !bytes.Equal(l.tensors(export), l.tensors(again)) {
		l.ts.Fatalf("%s: after training, scales do not follow the rule of the type", l.typ)
	}
}

type lattice struct {
	ts          *testscript.TestScript
	format, typ string
}

// quantized quantizes a model, exports it, and returns the directory of the export.
func (l lattice) quantized(model, dir, name string, settings []string) string {
	out := filepath.Join(dir, name, "model") // GGUF holds the last part
	args := []string{"quantize", model, "--method", "rtn", "--windows", "0", "--out", out}
	if _, err := os.Stat(l.ts.MkAbs(filepath.Join(model, "run.toml"))); err != nil { // not a run
		args = append(args, "--context", "16")
	}
	l.ts.Check(l.ts.Exec("cage", append(args, settings...)...))
	export := filepath.Join(dir, name+".export")
	l.ts.Check(l.ts.Exec("cage", "export", out, "--to", l.format, "--type", strings.ToLower(l.typ),
		"--out", export))
	return export
}

var namedQuantizer = regexp.MustCompile(`stored as (\S+), which .* quantizer\.weights = ({.*})`)

// read imports an export, and returns the model and the quantizer that keeps it.
func (l lattice) read(export, dir, name string) (model, quantizer string) {
	model, args := export, []string{"import", export}
	if l.format == "gguf" {
		model = filepath.Join(dir, name)
		args = []string{"import", filepath.Join(export, "model.gguf"), "--context", "16", "--out", model}
	}
	l.ts.Check(l.ts.Exec("cage", args...))
	named := namedQuantizer.FindStringSubmatch(l.ts.ReadFile("stdout"))
	if named == nil || named[1] != l.typ {
		l.ts.Fatalf("import names no quantizer for %s", l.typ)
	}
	return model, named[2]
}

// flags returns the flags of cage quantize for a quantizer.
func (l lattice) flags(quantizer string) (list []string) {
	var q struct{ Weights map[string]any }
	_, err := toml.Decode("weights = "+quantizer, &q)
	l.ts.Check(err)
	for key, v := range q.Weights {
		if key == "plugin" {
			list = append(list, "--quantizer", v.(string))
		} else {
			list = append(list, "--set", fmt.Sprintf("%s=%#v", key, v))
		}
	}
	return list
}

// file returns the name of the file that holds the weights of an export.
func (l lattice) file(export string) string {
	if l.format == "gguf" {
		return filepath.Join(export, "model.gguf")
	}
	return filepath.Join(export, "model.safetensors")
}

func (l lattice) tensors(export string) []byte { return []byte(l.ts.ReadFile(l.file(export))) }

// matrices returns the data of all tensors that are not floats, and of scales.
func (l lattice) matrices(export string) (data []byte) {
	path := vfs.At(l.ts.MkAbs(l.file(export)))
	add := func(bytes []byte, err error) {
		l.ts.Check(err)
		data = append(data, bytes...)
	}
	if l.format == "gguf" {
		f, err := gguf.Open(path)
		l.ts.Check(err)
		for _, t := range f.Tensors {
			if t.Type != gguf.F32 {
				add(f.Bytes(t))
			}
		}
		l.ts.Check(f.Close())
		return data
	}
	f, err := safetensors.Open(path)
	l.ts.Check(err)
	for _, info := range f.Tensors() {
		if t, err := f.Tensor(info.Name); !strings.HasSuffix(info.Name, ".weight") ||
			info.DType == safetensors.U32 {
			l.ts.Check(err)
			add(t.Bytes())
		}
	}
	l.ts.Check(f.Close())
	return data
}
