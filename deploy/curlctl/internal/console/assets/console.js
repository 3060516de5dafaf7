// Live pages and keyboard shortcuts. Every page and action works without this script.
const policy = window.trustedTypes
  ? trustedTypes.createPolicy('console', {createHTML: (page) => page})
  : {createHTML: (page) => page};
const find = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

let paused = false;
let busy = false;
let spokeAt = 0;

// say announces a text to screen readers, at most every five seconds.
function say(text) {
  if (Date.now() - spokeAt < 5000) return;
  spokeAt = Date.now();
  find('#said').textContent = text;
}

// load returns the document at an address and its final address, or null if it is not a page of the console.
async function load(address) {
  const response = await fetch(address, {headers: {Accept: 'text/html'}});
  const page = new DOMParser().parseFromString(policy.createHTML(await response.text()), 'text/html');
  return find('main', page) && {page, address: response.url};
}

// adopt replaces an element of this page with the one of another page.
function adopt(selector, page) {
  const [from, to] = [find(selector, page), find(selector)];
  if (from && to && from.outerHTML !== to.outerHTML) to.replaceWith(document.importNode(from, true));
}

// show replaces the content of this page with the one of another page.
function show(page) {
  const focused = document.activeElement && find('main').contains(document.activeElement) ? document.activeElement : null;
  const place = focused && (focused.id || focused.getAttribute('href'));
  adopt('main', page);
  document.title = page.title;
  document.body.dataset.live = page.body.dataset.live;
  find('main [autofocus]')?.focus();
  if (place) (document.getElementById(place) || all('main a').find((a) => a.getAttribute('href') === place))?.focus();
  enhance();
}

// go shows the page at an address, and optionally adds it to the history.
async function go(address, remember) {
  const loaded = await load(address).catch(() => null); // the next click tries again
  if (!loaded) return;
  show(loaded.page);
  if (remember) history.pushState(null, '', loaded.address);
}

// update refreshes the page: all content if the page wants that, or else the banners, the time and the number
// of new failures.
async function update() {
  if (busy || paused || document.hidden || !document.body.dataset.live) return;
  busy = true;
  const whole = find('main[data-refresh]') && !find('main :is(input, select):focus');
  const loaded = await load(whole ? location.href : document.body.dataset.live).catch(() => null);
  busy = false;
  if (loaded && !paused) {
    const wasLost = !find('#lost').hidden;
    const before = find('#new')?.textContent;
    for (const part of ['.banners', '#asof', '#new']) adopt(part, loaded.page);
    if (whole) show(loaded.page);
    else if (wasLost && find('#lost').hidden && !find('main form[method=post]')) go(location.href, false);
    if (find('#new') && find('#new').textContent !== before) say(find('#new').textContent);
  }
  setDot(loaded !== null);
}

function setDot(live) {
  find('#dot')?.classList.toggle('live', live && !paused);
  find('#dot')?.classList.toggle('paused', paused);
}

// enhance adds what works only with this script: select all, copy buttons, and protection from double submits.
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

// The rows, and the row selected with j and k.
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

let pressedG = 0; // when g was pressed
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
    paused = !paused;
    setDot(false);
    update();
    say(paused ? 'Live updates paused' : 'Live updates resumed');
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
  if (Date.now() - pressedG < 1500) {
    pressedG = 0;
    const link = find(`header [data-go="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  if (event.key === 'g') {
    pressedG = Date.now();
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
    go(fresh.href, true);
  }
});
document.addEventListener('visibilitychange', update);
window.addEventListener('popstate', () => go(location.href, false));
setInterval(update, 2000);

enhance();
update();
