package scaling

import (
	"bytes"
	"context"
	"path/filepath"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Save writes the result in all its forms, and its figures.
func (fit *Fit) Save(ctx context.Context, dir string) error {
	if err := vfs.At(dir).MkdirAll(); err != nil {
		return err
	}
	for name, format := range map[string]Format{"fit.md": Markdown, "fit.csv": CSV, "fit.json": JSON} {
		var content bytes.Buffer
		if err := fit.Write(&content, format); err != nil {
			return err
		}
		if err := atomicfile.WriteBytes(vfs.At(dir).Join(name), content.Bytes()); err != nil {
			return err
		}
	}
	for _, f := range fit.Figures() {
		for _, ending := range []string{".svg", ".png"} {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := figure.Save(filepath.Join(dir, f.Name+ending), f.Picture, f.Options); err != nil {
				return err
			}
		}
	}
	return nil
}
