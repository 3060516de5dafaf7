// Live numbers, keyboard shortcuts and reloading without flicker. Every page and action works
// without this script.
const policy = window.trustedTypes
  ? trustedTypes.createPolicy('console', {createHTML: (page) => page})
  : {createHTML: (page) => page};
const find = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

let source = null;
let held = false;
let wasLost = false;
let spokeAt = 0;
let swapping = false;

// say speaks to screen readers, at most every five seconds.
function say(text) {
  if (Date.now() - spokeAt < 5000) return;
  spokeAt = Date.now();
  find('#said').textContent = text;
}

// swap replaces the content of the page by that of an address.
async function swap(address, remember) {
  if (swapping) return;
  swapping = true;
  try {
    const response = await fetch(address, {headers: {Accept: 'text/html'}});
    if (response.redirected && new URL(response.url).pathname === '/signin') {
      location.assign('/signin');
      return;
    }
    const page = new DOMParser().parseFromString(policy.createHTML(await response.text()), 'text/html');
    const main = find('main', page);
    if (!main) return;
    const focused = document.activeElement && find('main').contains(document.activeElement) ? document.activeElement : null;
    const again = focused && (focused.id || focused.getAttribute('href'));
    find('main').replaceWith(document.importNode(main, true));
    document.title = page.title;
    find('main [autofocus]')?.focus();
    if (again) {
      const same = document.getElementById(again) || all('main a').find((a) => a.getAttribute('href') === again);
      if (same) same.focus();
    }
    if (remember) history.pushState(null, '', response.url);
    const live = page.body.dataset.live;
    if (live && live !== document.body.dataset.live) {
      document.body.dataset.live = live;
      connect();
    }
    enhance();
  } catch {
    // The next tick or click tries again.
  } finally {
    swapping = false;
  }
}

// connect receives live numbers while the page is visible.
function connect() {
  if (source) source.close();
  source = null;
  if (held || document.hidden || !document.body.dataset.live) {
    dot();
    return;
  }
  const opened = source = new EventSource(document.body.dataset.live);
  source.onmessage = (event) => {
    // A new connection continues from here.
    document.body.dataset.live = document.body.dataset.live.replace(/\bentries=\d+/, `entries=${event.lastEventId}`);
    tick(JSON.parse(event.data));
  };
  source.onerror = () => {
    dot();
    if (opened.readyState === EventSource.CLOSED) setTimeout(() => { if (source === opened) connect(); }, 5000);
  };
  dot();
}

function dot() {
  const light = find('#dot');
  if (!light) return;
  light.classList.toggle('live', source !== null && source.readyState === EventSource.OPEN && !held);
  light.classList.toggle('held', held);
}

function tick(t) {
  dot();
  find('#asof').textContent = t.asOf;
  find('#lost').hidden = !t.lost;
  find('#paused').hidden = !t.paused;
  const headline = find('#headline');
  if (headline) headline.className = `state ${t.state}`;
  if (wasLost && !t.lost && !find('main form[method=post]')) swap(location.href, false);
  wasLost = t.lost;
  for (const element of all('[data-n]')) {
    const text = t.numbers[element.dataset.n];
    if (text !== undefined && element.textContent !== text) element.textContent = text;
  }
  for (const line of all('[data-spark]')) {
    const points = (t.sparks || {})[line.dataset.spark];
    if (points) line.setAttribute('points', points);
  }
  const fresh = find('#new');
  if (fresh && t.new > 0) {
    const text = `${t.new.toLocaleString('en')} new – show`;
    if (fresh.textContent !== text) {
      fresh.textContent = text;
      fresh.hidden = false;
      say(`${t.new} new failures`);
    }
  }
  for (const [at, what, detail] of t.passing || []) pass(at, what, detail);
}

// pass adds a message to the live list of the overview.
function pass(at, what, detail) {
  const list = find('#passing');
  if (!list) return;
  find('#quiet').hidden = true;
  const row = document.createElement('li');
  for (const [tag, text] of [['time', at], ['b', what], ['bdi', detail]]) {
    const part = document.createElement(tag);
    part.textContent = text;
    if (tag === 'b') part.className = what;
    row.append(part, ' ');
  }
  row.title = detail;
  list.prepend(row);
  while (list.children.length > 12) list.lastChild.remove();
}

// enhance prepares new content.
function enhance() {
  const every = find('#all');
  if (every) {
    every.hidden = false;
    every.addEventListener('change', () => {
      for (const box of all('input[name=id]')) box.checked = every.checked;
    });
  }
  for (const code of all('.command code')) {
    const copy = document.createElement('button');
    copy.type = 'button';
    copy.className = 'plain';
    copy.textContent = 'Copy';
    copy.addEventListener('click', async () => {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = 'Copied';
      say('Copied');
    });
    if (navigator.clipboard) code.after(copy);
  }
  for (const button of all('form[method=post] button.main')) {
    button.form.addEventListener('submit', () => setTimeout(() => { button.disabled = true; }));
  }
}

// Rows, and the row selected by keys.
const rows = () => all('table.rows tbody tr');
const current = () => find('tr.at');

function move(by) {
  const list = rows();
  if (!list.length) return;
  const at = list.indexOf(current());
  const next = list[Math.max(0, Math.min(list.length - 1, at < 0 ? 0 : at + by))];
  current()?.classList.remove('at');
  next.classList.add('at');
  const link = find('a', next);
  (link || next).focus({preventScroll: true});
  next.scrollIntoView({block: 'nearest'});
}

function replay() {
  if (all('input[name=id]:checked').length) {
    find('button[formaction="/failures/replay"]')?.click();
    return;
  }
  const link = (current() && find('[data-replay]', current())) || find('[data-replay]');
  if (link) location.assign(link.href);
}

let going = 0;
const keys = {
  '/': () => find('#q')?.focus(),
  j: () => move(1),
  k: () => move(-1),
  x: () => {
    const box = current() && find('input[name=id]', current());
    if (box) box.checked = !box.checked;
  },
  r: replay,
  n: () => { const fresh = find('#new'); if (fresh && !fresh.hidden) fresh.click(); },
  l: () => {
    held = !held;
    const holding = find('#holding');
    if (holding) holding.hidden = !held;
    connect();
    say(held ? 'Live updates paused' : 'Live updates resumed');
  },
  '?': () => find('[data-go="?"]')?.click(),
  Escape: () => find('[data-back]')?.click(),
};

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.closest('input:not([type=checkbox]), select, textarea')) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  if (Date.now() - going < 1500) {
    going = 0;
    const link = find(`header [data-go="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  if (event.key === 'g') {
    going = Date.now();
    return;
  }
  if (event.key === 'Enter') {
    const link = event.target.closest('a, button, summary') ? null : current() && find('[data-open]', current());
    if (link) link.click();
    return;
  }
  const act = keys[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

document.addEventListener('click', (event) => {
  const fresh = event.target.closest('#new');
  if (fresh && !event.ctrlKey && !event.metaKey && event.button === 0) {
    event.preventDefault();
    swap(fresh.href, true);
  }
});
document.addEventListener('visibilitychange', connect);
window.addEventListener('popstate', () => swap(location.href, false));
setInterval(() => {
  if (!document.hidden && !held && find('main[data-refresh]') && !find('main :is(input, select):focus')) swap(location.href, false);
}, 2000);

enhance();
connect();
