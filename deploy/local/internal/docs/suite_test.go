package docs_test

import (
	"testing"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestDocs(t *testing.T) { suitetest.Run(t, "Docs") }

// root is the root of the repository.
const root = "../../../.."
