# Installs Windows' own updates. Settings: without, the titles of those to leave out. While the result says "restart",
# Windows must be restarted and this script run again.
# Windows Update refuses remote sessions, so a task in the account SYSTEM does the work, and this script reports it.
. (Join-Path $PSScriptRoot 'common.ps1')
. (Join-Path $PSScriptRoot 'tasks.ps1')
$settings = Read-Settings @($input)

$Without = "$WinlabFolder\updates-without.txt"

# The task runs this. Result code 2: success (OperationResultCode of the Windows Update Agent). BrowseOnly=0 leaves out
# previews and other optional updates. The names of categories are in Windows' language, so these are IDs: upgrades to
# another Windows, and drivers
$TaskScript = @'
$ErrorActionPreference = 'Stop'
function Write-Line([string]$Text) { Add-Content -LiteralPath 'C:\winlab\updates.log' -Value $Text -Encoding ASCII }
$result = @{ installed = @(); failed = @(); restart = $false; error = '' }
try {
    Set-Service -Name 'wuauserv' -StartupType Manual
    $session = New-Object -ComObject 'Microsoft.Update.Session'
    Write-Line 'looking for updates'
    $found = $session.CreateUpdateSearcher().Search("IsInstalled=0 and IsHidden=0 and BrowseOnly=0 and Type='Software'")
    $wanted = New-Object -ComObject 'Microsoft.Update.UpdateColl'
    $unwanted = '3689bdc8-b205-4af4-8d4a-a63924c5e9d5', 'ebfc1fc5-71a4-4f7b-9aca-3b9a503104a0'
    $without = @(Get-Content -LiteralPath 'C:\winlab\updates-without.txt' -Encoding UTF8)
    foreach ($update in $found.Updates) {
        if ($update.InstallationBehavior.CanRequestUserInput -or $without -contains $update.Title) { continue }
        $categories = @(foreach ($category in $update.Categories) { $category.CategoryID })
        if (@($categories | Where-Object { $unwanted -contains $_ }).Count -gt 0) { continue }
        if (-not $update.EulaAccepted) { $update.AcceptEula() }
        $wanted.Add($update) | Out-Null
    }
    if ($wanted.Count -gt 0) {
        Write-Line "downloading $($wanted.Count) updates"
        $downloader = $session.CreateUpdateDownloader()
        $downloader.Updates = $wanted
        $downloader.Download() | Out-Null
        for ($i = 0; $i -lt $wanted.Count; $i++) {
            $update = $wanted.Item($i)
            Write-Line "installing $($update.Title)"
            $one = New-Object -ComObject 'Microsoft.Update.UpdateColl'
            $one.Add($update) | Out-Null
            $installer = $session.CreateUpdateInstaller()
            $installer.Updates = $one
            $done = $installer.Install()
            if ($done.RebootRequired) { $result.restart = $true }
            $list = if ($done.ResultCode -eq 2) { 'installed' } else { 'failed' }
            $result[$list] += "$($update.Title)"
        }
    }
} catch {
    $result.error = "$($_.Exception.Message)"
}
# under another name first: half a file is no JSON
ConvertTo-Json -InputObject $result | Set-Content -LiteralPath 'C:\winlab\updates.json.new' -Encoding UTF8
Move-Item -LiteralPath 'C:\winlab\updates.json.new' -Destination 'C:\winlab\updates.json' -Force
'@

Invoke-Step {
    New-Folder $WinlabFolder
    Set-Text $Without (@($settings.without) -join "`n")
    # the limit is Windows' own default for tasks
    $result = Invoke-AsSystem 'updates' $TaskScript 4320 'The task for updates ended without a result'
    Remove-Item -Force -ErrorAction SilentlyContinue -Path $Without
    if ($result.error) { throw "Windows Update: $($result.error)" }
    return @{ installed = @($result.installed); failed = @($result.failed); restart = [bool]$result.restart }
}
