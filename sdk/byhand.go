package sdk

import (
	"fmt"
	"io"
	"path/filepath"
)

// describeFlag makes a plugin print its description.
const describeFlag = "--describe"

// byHand answers a person who started the plugin with the command line args, and
// returns the exit status. err says what is wrong with the descriptions.
func byHand(out, errOut io.Writer, args []string, descriptions map[Kind]Description, err error) int {
	if err != nil {
		fmt.Fprintf(errOut, "this plugin cannot work: %v\n", err)
		return 1
	}
	wanted := len(args) > 1 && args[1] == describeFlag
	for _, kind := range []Kind{KindQuantizer, KindOptimizer} {
		d, ok := descriptions[kind]
		switch {
		case ok && wanted:
			fmt.Fprintf(out, "%s, kind %s\n\n%s", d.Name, kind, d)
		case ok:
			fmt.Fprintf(errOut, "%s is a plugin of cage: the %s %s. The host starts it by itself; name it in a run's TOML file.\n",
				filepath.Base(args[0]), kind, d.Name)
		}
	}
	if wanted {
		return 0
	}
	fmt.Fprintf(errOut, "To see its parameters: cage plugins show %s, or %s %s\n", filepath.Base(args[0]), args[0], describeFlag)
	return 1
}
