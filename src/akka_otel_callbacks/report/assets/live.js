'use strict';
/* A page that `akka-otel watch --web` serves asks for what is new. Its zoom, its cursor and what is hidden stay. */

const OVER = -1, PAUSE_MS = 1500;

async function renew() {
  try {
    const answer = await fetch(`page.json?${page.version}`, { cache: 'no-store' });
    if (answer.status === 200) {
      page = await answer.json();
      showAll();
    }
    document.getElementById('live').textContent = page.version === OVER ? 'The run is over.' : 'Renews itself.';
  } catch {
    document.getElementById('live').textContent = 'akka-otel watch has ended: this page is not renewed any more.';
    page.version = OVER;
  }
  if (page.version !== OVER) setTimeout(renew, PAUSE_MS);
}

if (page.version !== null) renew();
