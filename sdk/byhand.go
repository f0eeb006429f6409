package sdk

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// byHand answers a person who started the plugin, and returns the exit status.
func byHand(descriptions map[Kind]Description, err error) int {
	if err != nil {
		fmt.Fprintf(os.Stderr, "this plugin cannot work: %v\n", err)
		return 1
	}
	wanted := len(os.Args) > 1 && os.Args[1] == "--describe"
	kinds := []Kind{KindQuantizer, KindOptimizer}
	kinds = slices.DeleteFunc(kinds, func(k Kind) bool { _, ok := descriptions[k]; return !ok })
	for _, kind := range kinds {
		d := descriptions[kind]
		if wanted {
			fmt.Printf("%s, kind %s\n\n%s", d.Name, kind, d)
			continue
		}
		fmt.Fprintf(os.Stderr, "%s is a plugin of cage: the %s %s. The host starts it by itself; name it in a run's TOML file.\n",
			filepath.Base(os.Args[0]), kind, d.Name)
	}
	if wanted {
		return 0
	}
	fmt.Fprintf(os.Stderr, "To see its parameters: cage plugins show %s, or %s --describe\n", filepath.Base(os.Args[0]), os.Args[0])
	return 1
}
