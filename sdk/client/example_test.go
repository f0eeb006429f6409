package client_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/sdk/client"
)

func ExamplePlugins() {
	for version, plugins := range client.Plugins() {
		fmt.Println("protocol version", version, "serves", len(plugins), "kinds of plugins")
	}
	// Output: protocol version 2 serves 2 kinds of plugins
}

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
