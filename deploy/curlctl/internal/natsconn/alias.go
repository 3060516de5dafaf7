package natsconn

import "github.com/spf13/pflag"

// aliases are the names that the flags had before they got those of the
// services.
func aliases() map[string]string {
	names := map[string]string{"server": "nats-url"}
	for _, name := range []string{"creds", "nkey", "ca", "cert", "key"} {
		names[name] = "nats-" + name
	}
	return names
}

// Names returns the names of all flags that BindFlags adds for the connection,
// the former ones last.
func Names() []string {
	names := []string{"context"}
	former := []string{}
	for alias, name := range aliases() {
		names, former = append(names, name), append(former, alias)
	}
	return append(names, former...)
}

// aliasValue sets another flag, unless that is set already.
type aliasValue struct{ target *pflag.Flag }

// String implements pflag.Value.
func (a *aliasValue) String() string {
	if a.target == nil {
		return ""
	}
	return a.target.Value.String()
}

// Type implements pflag.Value.
func (a *aliasValue) Type() string { return a.target.Value.Type() }

// Set implements pflag.Value.
func (a *aliasValue) Set(value string) error {
	if a.target.Changed {
		return nil
	}
	a.target.Changed = true
	return a.target.Value.Set(value)
}
