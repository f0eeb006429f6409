package plugin

import (
	"fmt"
	"os"
	"time"
)

// DefaultTimeout is the default of the time limits in [Options].
const DefaultTimeout = 10 * time.Second

// TimeoutVariable is the environment variable that sets the time limits, for example to 30s or 2m. A plugin that
// imports a large library from a network disk may need more than the default.
const TimeoutVariable = "CAGE_PLUGIN_TIMEOUT"

// moreTime ends messages about a limit of time.
const moreTime = " (" + TimeoutVariable + "=1m allows a minute)"

// timeLimit is the limit of the variable, or the default.
func timeLimit() (time.Duration, error) {
	text := os.Getenv(TimeoutVariable)
	if text == "" {
		return DefaultTimeout, nil
	}
	limit, err := time.ParseDuration(text)
	if err != nil || limit < time.Second {
		return 0, fmt.Errorf("%s is %q: want a time of at least 1s, such as 30s or 2m", TimeoutVariable, text)
	}
	return limit, nil
}
