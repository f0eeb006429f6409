package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/cage-qat/cage/host/train/config"
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
