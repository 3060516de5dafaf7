package monitor

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// Rules has recording and alerting rules in the order of evaluation.
type Rules struct {
	// Records are the recording rules.
	Records []rulefmt.Rule
	// Alerts are the alerting rules.
	Alerts []rulefmt.Rule
}

// ReadRules reads all files that match a pattern, as strictly as Prometheus.
func ReadRules(patterns ...string) (*Rules, error) {
	all := &Rules{}
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			return nil, errors.Join(fmt.Errorf("no rules in %s", pattern), err)
		}
		for _, path := range paths {
			groups, errs := rulefmt.ParseFile(path, false, model.LegacyValidation, parser.NewParser(parser.Options{}),
				slog.New(slog.DiscardHandler))
			if err := errors.Join(errs...); err != nil {
				return nil, fmt.Errorf("read rules: %w", err)
			}
			all.add(groups)
		}
	}
	return all, nil
}

func (r *Rules) add(groups *rulefmt.RuleGroups) {
	for _, g := range groups.Groups {
		for _, rule := range g.Rules {
			if rule.Alert != "" {
				r.Alerts = append(r.Alerts, rule)
			} else {
				r.Records = append(r.Records, rule)
			}
		}
	}
}

// Alert returns the alert of that name.
func (r *Rules) Alert(name string) (rulefmt.Rule, error) {
	for _, a := range r.Alerts {
		if a.Alert == name {
			return a, nil
		}
	}
	return rulefmt.Rule{}, fmt.Errorf("unknown alert %q", name)
}
