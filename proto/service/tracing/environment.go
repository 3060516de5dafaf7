package tracing

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// environment is what the variables of OpenTelemetry ask for, as far as its SDK
// does not look for itself.
type environment struct {
	// endpoint of the collector without userinfo, for the log; empty: traces
	// are off.
	endpoint string
	// wrong is one sentence for each value that is not understood.
	wrong []string
}

// readEnvironment checks what the SDK would complain about with the values of
// variables, among which are secrets. As OpenTelemetry demands of what is not
// understood, it is logged and passed over, and never stops the service.
func readEnvironment() environment {
	var e environment
	if value("OTEL_SDK_DISABLED") == "true" {
		return e
	}
	switch exporter := value("OTEL_TRACES_EXPORTER"); exporter {
	case "", "otlp":
	case "none":
		return e
	default:
		e.complain("OTEL_TRACES_EXPORTER: %q is not otlp or none; there are no traces", exporter)
		return e
	}
	name := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	raw := os.Getenv(name)
	if raw == "" {
		name = "OTEL_EXPORTER_OTLP_ENDPOINT"
		raw = os.Getenv(name)
	}
	if raw == "" {
		return e
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		e.complain("%s is not an address such as http://collector:4318; there are no traces", name)
		return e
	}
	protocol := cmp.Or(value("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), value("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf")
	if protocol != "http/protobuf" && protocol != "http/json" {
		e.complain("OTEL_EXPORTER_OTLP_PROTOCOL: %q is not http/protobuf or http/json; there are no traces", protocol)
		return e
	}
	e.endpoint = u.Scheme + "://" + u.Host
	e.checkSampler()
	e.checkHeaders("OTEL_EXPORTER_OTLP_HEADERS")
	e.checkHeaders("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
	return e
}

func value(name string) string { return strings.ToLower(strings.TrimSpace(os.Getenv(name))) }

func (e *environment) complain(format string, args ...any) {
	e.wrong = append(e.wrong, fmt.Sprintf(format, args...))
}

func (e *environment) checkSampler() {
	switch sampler := value("OTEL_TRACES_SAMPLER"); sampler {
	case "", "always_on", "always_off", "parentbased_always_on", "parentbased_always_off":
	case "traceidratio", "parentbased_traceidratio":
		arg := value("OTEL_TRACES_SAMPLER_ARG")
		if share, err := strconv.ParseFloat(arg, 64); arg != "" && (err != nil || share < 0 || share > 1) {
			e.complain("OTEL_TRACES_SAMPLER_ARG: %q is not a number from 0 to 1; every trace is kept", arg)
		}
	default:
		e.complain("OTEL_TRACES_SAMPLER: %q is not a sampler; every trace is kept", sampler)
	}
}

// checkHeaders never repeats what it finds: it is where credentials stand.
func (e *environment) checkHeaders(name string) {
	for header := range strings.SplitSeq(os.Getenv(name), ",") {
		if header = strings.TrimSpace(header); header != "" && strings.Index(header, "=") < 1 {
			e.complain("%s: a part of it is not name=value and is not sent", name)
			return
		}
	}
}
