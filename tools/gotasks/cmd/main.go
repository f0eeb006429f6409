// Command cmd writes small evaluation tasks made from Go source, and texts on which to train for them: see package
// gotasks.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/tools/gotasks"
)

func main() {
	var o gotasks.Options
	flag.StringVar(&o.Root, "root", "", "directory of Go source, as $(go env GOROOT)/src")
	flag.IntVar(&o.Bytes, "bytes", 4_000_000, "bytes of source to train on, and as many again of recall and needle")
	flag.IntVar(&o.Items, "items", 300, "questions of each task")
	flag.Uint64Var(&o.Seed, "seed", 0, "seed of all that is drawn")
	out := flag.String("out", "", "directory to write into")
	flag.Parse()
	if err := run(o, *out); err != nil {
		fmt.Fprintln(os.Stderr, "gotasks:", err)
		os.Exit(1)
	}
}

func run(o gotasks.Options, out string) error {
	if o.Root == "" || out == "" {
		return fmt.Errorf("-root and -out are required: the directory of source and the one to write into")
	}
	made, err := gotasks.Make(o)
	if err != nil {
		return err
	}
	err = made.Write(func(name string, write func(io.Writer) error) error {
		path := vfs.At(out).Join(name)
		if err := path.Dir().MkdirAll(); err != nil {
			return err
		}
		return atomicfile.Write(path, write)
	})
	if err == nil {
		fmt.Printf("%d documents to train on, and %d questions of each task, in %s\n", len(made.Documents), o.Items, out)
	}
	return err
}
